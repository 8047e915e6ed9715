// Gets URLs through a proxy as Go's programs do: by net/http's Transport, or by golang.org/x/net/proxy.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/net/proxy"
)

// Arguments: the proxy's URL (http://, socks5:// as net/http has it, or x-socks5:// for x/net/proxy), then URLs.
func main() {
	at, err := url.Parse(os.Args[1])
	fail(err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if at.Scheme == "x-socks5" {
		dialer, err := proxy.SOCKS5("tcp", at.Host, nil, proxy.Direct)
		fail(err)
		transport.DialContext = dialer.(proxy.ContextDialer).DialContext
	} else {
		transport.Proxy = http.ProxyURL(at)
	}
	client := &http.Client{Transport: transport}
	for _, address := range os.Args[2:] {
		answer, err := client.Get(address)
		fail(err)
		text, err := io.ReadAll(answer.Body)
		fail(err)
		fmt.Print(string(text))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
