// Answers what Go makes of NO_PROXY: questions as JSON on stdin, for each on stdout whether a
// connection to https://host:port would take the proxy.
package main

import (
	"encoding/json"
	"log"
	"net"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

type question struct {
	NoProxy, Host, Port string
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		log.Fatal(err)
	}
	answers := make([]bool, 0, len(questions))
	for _, asked := range questions {
		config := httpproxy.Config{HTTPSProxy: "http://proxy.example.com:3128", NoProxy: asked.NoProxy}
		destination := &url.URL{Scheme: "https", Host: net.JoinHostPort(asked.Host, asked.Port)}
		proxy, err := config.ProxyFunc()(destination)
		if err != nil {
			log.Fatal(err)
		}
		answers = append(answers, proxy != nil)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}
