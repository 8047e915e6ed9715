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

type options struct {
	kubelet, http, https, webhook, aggregated, banner string
	cert, key, clientCA, requestheaderCA              string
}

// serve has every port open when it returns; one that stops serving later is reported to failed.
func serve(o options, failed chan<- error) error {
	certificate, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return err
	}
	clients, err := readPool(o.clientCA)
	if err != nil {
		return err
	}
	frontProxies, err := readPool(o.requestheaderCA)
	if err != nil {
		return err
	}
	ports := &listen.Ports{}
	banner, err := ports.Open("banner", o.banner)
	if err != nil {
		return err
	}
	serving := []func() error{func() error { return targets.ServeBanner(banner) }}
	web := targets.Web()
	for _, server := range []struct {
		name, address string
		handler       http.Handler
		tls           *tls.Config
	}{
		{"kubelet", o.kubelet, kubelet.New(ports.WriteMetrics).Handler(), tlsFor(certificate, clients)},
		{"http", o.http, web, nil},
		{"https", o.https, web, tlsFor(certificate, nil)},
		{"webhook", o.webhook, extension.Webhook(), tlsFor(certificate, nil)},
		{"aggregated", o.aggregated, extension.Aggregated(), tlsFor(certificate, frontProxies)},
	} {
		listener, err := ports.Open(server.name, server.address)
		if err != nil {
			return err
		}
		httpServer := &http.Server{Handler: server.handler, TLSConfig: server.tls}
		serving = append(serving, func() error {
			if server.tls == nil {
				return httpServer.Serve(listener)
			}
			return httpServer.ServeTLS(listener, "", "")
		})
	}
	for _, serve := range serving {
		go func() { failed <- serve() }()
	}
	return nil
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
