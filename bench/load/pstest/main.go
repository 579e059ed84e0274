// Pstest serves Google's own fake of Pub/Sub for tests, as a peer to measure beside: it keeps everything in memory.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1")
	flag.Parse()
	server := pstest.NewServerWithPort(*port)
	fmt.Println(server.Addr)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	_ = server.Close()
}
