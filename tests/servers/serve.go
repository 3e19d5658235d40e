// A small cache server: each line with a number on the unix socket os.Args[1] stores so many values.
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
)

var cache = map[int][]byte{}

//go:noinline
func cacheInsert(howMany int) {
	for i := 0; i < howMany; i++ {
		value := make([]byte, 1024)
		value[0] = 1
		cache[len(cache)] = value
	}
}

func serve(peer net.Conn) {
	defer peer.Close()
	lines := bufio.NewScanner(peer)
	for lines.Scan() {
		howMany, err := strconv.Atoi(lines.Text())
		if err != nil {
			return
		}
		cacheInsert(howMany)
		fmt.Fprintln(peer, "ok")
	}
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		peer, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		serve(peer)
	}
}
