package extension

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	group        = "stand-in.culvert.test"
	version      = "v1"
	groupVersion = group + "/" + version
)

type echo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

type echoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []echo `json:"items"`
}

// Aggregated is the API stand-in.culvert.test/v1 with one resource, echoes, that can be listed. kube-apiserver identifies
// itself by its front-proxy certificate; the TLS layer has verified it if one was given.
func Aggregated() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis", serveGroups)
	mux.HandleFunc("GET /apis/"+group, serveGroup)
	mux.HandleFunc("GET /apis/"+groupVersion, serveResources)
	mux.HandleFunc("GET /apis/"+groupVersion+"/echoes", serveEchoes)
	return mux
}

func apiGroup() metav1.APIGroup {
	only := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: version}
	return metav1.APIGroup{
		TypeMeta:         metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:             group,
		Versions:         []metav1.GroupVersionForDiscovery{only},
		PreferredVersion: only,
	}
}

func serveGroups(w http.ResponseWriter, _ *http.Request) {
	answer(w, metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{apiGroup()},
	})
}

func serveGroup(w http.ResponseWriter, _ *http.Request) {
	answer(w, apiGroup())
}

func serveResources(w http.ResponseWriter, _ *http.Request) {
	answer(w, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion,
		APIResources: []metav1.APIResource{{Name: "echoes", SingularName: "echo", Kind: "Echo", Verbs: metav1.Verbs{"list"}}},
	})
}

func serveEchoes(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		http.Error(w, "no front-proxy certificate", http.StatusUnauthorized)
		return
	}
	answer(w, echoList{
		TypeMeta: metav1.TypeMeta{Kind: "EchoList", APIVersion: groupVersion},
		Items: []echo{{
			TypeMeta:   metav1.TypeMeta{Kind: "Echo", APIVersion: groupVersion},
			ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		}},
	})
}
