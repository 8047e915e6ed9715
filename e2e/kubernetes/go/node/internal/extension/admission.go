// Package extension serves what extends an API server from inside the node's network: an admission webhook and an
// aggregated API.
package extension

import (
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const denyLabel = "culvert.test/deny"

// Webhook answers AdmissionReview v1 at /validate: an object labelled culvert.test/deny=true is denied, any other allowed.
func Webhook() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", validate)
	return mux
}

func validate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	review.Response = judge(review.Request)
	review.Request = nil
	answer(w, review)
}

func judge(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var object metav1.PartialObjectMetadata
	// A deletion has no object, and what has no labels is not denied.
	_ = json.Unmarshal(request.Object.Raw, &object)
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: object.Labels[denyLabel] != "true"}
	if !response.Allowed {
		message := "the stand-in denies objects labelled " + denyLabel + "=true"
		response.Result = &metav1.Status{Message: message, Code: http.StatusForbidden}
	}
	return response
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}
