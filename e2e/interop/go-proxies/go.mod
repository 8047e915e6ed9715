module culvert.invalid/proxies

go 1.24.0

require golang.org/x/net v0.49.0
