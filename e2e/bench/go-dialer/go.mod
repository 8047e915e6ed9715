module culvert.invalid/go-dialer

go 1.24
