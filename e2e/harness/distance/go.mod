module culvert.invalid/distance

go 1.24
