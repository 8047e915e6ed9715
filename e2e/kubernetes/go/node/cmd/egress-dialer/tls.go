package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// grpcOverTLS dials by konnectivity-client over mutual TLS, which no egress selector does: users of Open Cluster
// Management reach their clusters so.
func grpcOverTLS(server, caFile, certFile, keyFile string) (utilnet.DialFunc, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", caFile)
	}
	transport := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(
			ctx, context.Background(), server, grpc.WithTransportCredentials(transport),
		)
		if err != nil {
			return nil, err
		}
		return tunnel.DialContext(ctx, network, address)
	}, nil
}
