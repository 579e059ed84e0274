// Load measures a Pub/Sub server on loopback from outside and prints one JSON object.
//
// It is written to cost far less than the server that it measures: requests are encoded once and only their sequence
// numbers are patched in, and of what comes back only ack ids and sequence numbers are read. What it does use is
// reported as cpu_seconds, so that a reader sees whether the figure is the server's or the generator's.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"time"
)

// settings are the same for every command; each uses those that mean something to it.
type settings struct {
	target        string
	messages      int
	size          int
	batch         int
	callers       int
	connections   int
	outstanding   int
	subscriptions int
	// Of commands with push subscriptions.
	hanging int
	rate    int
	status  int
	backoff int
	// Of a consumer's push endpoint.
	services  int
	serverPID int
	limit     time.Duration
}

// result is what every command prints. Fields that do not apply are left out.
type result struct {
	Messages          int      `json:"messages"`
	Seconds           float64  `json:"seconds"`
	PerSecond         float64  `json:"per_second"`
	Complete          bool     `json:"complete"`
	Duplicates        int      `json:"duplicates"`
	P50Ms             *float64 `json:"p50_ms,omitempty"`
	P99Ms             *float64 `json:"p99_ms,omitempty"`
	SlowestOverMedian *float64 `json:"slowest_over_median,omitempty"`
	FairnessAtHalf    *float64 `json:"fairness_at_half,omitempty"`
	CPUSeconds        float64  `json:"cpu_seconds"`
	ServerCPUSeconds  float64  `json:"server_cpu_seconds"`
	ServerPeakRSSMB   float64  `json:"server_peak_rss_mb"`
	MachineCPUSeconds float64  `json:"machine_cpu_seconds"`
}

type command func(ctx context.Context, s settings) (result, error)

var commands = map[string]command{
	"publish": measurePublish,
	"stream":  measureStream,
	"drain":   measureDrain,
	"latency": measureLatency,
	"push":    measurePush,
	"fanout":  measureFanout,
	"refuse":  measureRefuse,
	"consume": measureConsume,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("usage: load %s [flags]", strings.Join(commandNames(), "|"))
	}
	s, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	// A little more than the measurement, for what is created before and deleted after it.
	ctx, cancel := context.WithTimeout(context.Background(), s.limit+20*time.Second)
	defer cancel()
	measured, err := commands[args[0]](ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return json.NewEncoder(os.Stdout).Encode(measured)
}

func commandNames() []string {
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func parse(name string, args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("load "+name, flag.ContinueOnError)
	flags.StringVar(&s.target, "target", "", "host:port of the server, on loopback")
	flags.IntVar(&s.messages, "messages", 10_000, "messages to send, at most")
	flags.IntVar(&s.size, "size", 256, "bytes of data in a message")
	flags.IntVar(&s.batch, "batch", 100, "messages in one Publish call")
	flags.IntVar(&s.callers, "callers", 8, "Publish calls under way at once")
	flags.IntVar(&s.connections, "connections", 2, "connections that the callers share")
	flags.IntVar(&s.outstanding, "outstanding", 10_000, "messages that a stream allows to be unacked")
	flags.IntVar(&s.subscriptions, "subscriptions", 1, "subscriptions that each get every message")
	flags.IntVar(&s.hanging, "hanging", 0, "of these, how many stop answering after the first tenth of the messages")
	flags.IntVar(&s.rate, "rate", 0, "batches to publish in a second; 0 means as fast as they are taken")
	flags.IntVar(&s.status, "status", 422, "what an endpoint answers that refuses every message")
	flags.IntVar(&s.backoff, "backoff", 0, "seconds before a retry; 0 means the server's own choice")
	flags.IntVar(&s.services, "services", 1_000, "services that system events are about, in turn")
	flags.IntVar(&s.serverPID, "server-pid", 0, "process whose CPU time and memory are reported with the figures")
	flags.DurationVar(&s.limit, "limit", 30*time.Second, "time after which the measurement ends, complete or not")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	return s, check(s)
}

func check(s settings) error {
	host, _, err := net.SplitHostPort(s.target)
	if err != nil {
		return fmt.Errorf("-target: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("-target: %s is not a loopback address, and this is no tool to load other machines with", host)
	}
	if s.size < sequenceDigits {
		return fmt.Errorf("-size: at least %d bytes are needed", sequenceDigits)
	}
	if s.messages < 1 || s.batch < 1 || s.callers < 1 || s.connections < 1 || s.subscriptions < 1 || s.limit <= 0 ||
		s.services < 1 {
		return fmt.Errorf("counts and times must be positive")
	}
	if s.rate < 0 || s.backoff < 0 {
		return fmt.Errorf("-rate and -backoff must not be negative")
	}
	if s.hanging < 0 || s.hanging >= s.subscriptions {
		return fmt.Errorf("-hanging: at least one subscription must answer")
	}
	return nil
}
