package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"culvert.invalid/node/internal/extension"
	"culvert.invalid/node/internal/kubelet"
	"culvert.invalid/node/internal/listen"
	"culvert.invalid/node/internal/targets"
)

type files struct {
	cert, key, clientCA, requestheaderCA string
}

// port is served over TLS where it has a configuration. Its numbers are also in world/addresses.ts.
type port struct {
	name, address string
	handler       http.Handler
	tls           *tls.Config
}

// serve has every port open when it returns; one that stops serving later is reported to failed.
func serve(f files, failed chan<- error) error {
	listeners := &listen.Ports{}
	ports, err := portsOf(f, listeners)
	if err != nil {
		return err
	}
	banner, err := listeners.Open("banner", ":9001")
	if err != nil {
		return err
	}
	serving := []func() error{func() error { return targets.ServeBanner(banner) }}
	for _, port := range ports {
		listener, err := listeners.Open(port.name, port.address)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: port.handler, TLSConfig: port.tls}
		serving = append(serving, func() error {
			if port.tls == nil {
				return server.Serve(listener)
			}
			return server.ServeTLS(listener, "", "")
		})
	}
	for _, serve := range serving {
		go func() { failed <- serve() }()
	}
	return nil
}

func portsOf(f files, listeners *listen.Ports) ([]port, error) {
	certificate, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, err
	}
	clients, err := readPool(f.clientCA)
	if err != nil {
		return nil, err
	}
	frontProxies, err := readPool(f.requestheaderCA)
	if err != nil {
		return nil, err
	}
	kubelet, err := kubelet.New(listeners.WriteMetrics)
	if err != nil {
		return nil, err
	}
	web := targets.Web()
	return []port{
		{"kubelet", ":10250", kubelet.Handler(), tlsFor(certificate, clients)},
		{"http", ":8080", web, nil},
		{"https", ":8443", web, tlsFor(certificate, nil)},
		{"webhook", ":9443", extension.Webhook(), tlsFor(certificate, nil)},
		{"aggregated", ":9444", extension.Aggregated(), tlsFor(certificate, frontProxies)},
	}, nil
}

// tlsFor asks for a certificate where a CA can judge it. One that is absent is the handler's to refuse, in HTTP.
func tlsFor(certificate tls.Certificate, clients *x509.CertPool) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	if clients != nil {
		config.ClientCAs = clients
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config
}

func readPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}
