package main

import (
	"os"
	"syscall"
)

//go:noinline
func direct() []byte {
	b, err := syscall.Mmap(-1, 0, 0x123000, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return b
}

type pool struct{ pages [][]byte }

//go:noinline
func (p *pool) grow() {
	p.pages = append(p.pages, make([]byte, 100<<20))
	p.pages[0][1<<20] = 1
}

func main() {
	if len(os.Args) > 1 {
		p := &pool{}
		p.grow()
		os.Exit(len(p.pages))
	}
	b := direct()
	os.Exit(int(b[0]))
}
