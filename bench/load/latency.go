package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// measureLatency: from just before Publish to the message's arrival on an open stream, one message at a time.
func measureLatency(ctx context.Context, s settings) (result, error) {
	srv, err := open(ctx, s, "")
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	pull, err := srv.stream(streaming, 0, s.outstanding)
	if err != nil {
		return result{}, err
	}
	arrivals := make(chan arrival, 1)
	go forwardArrivals(streaming, pull, arrivals)
	timer := startTimer(s)
	took, err := timeEach(ctx, srv, s, arrivals, timer.deadline(s.limit))
	if err != nil {
		return result{}, err
	}
	measured := timer.result(len(took), s.messages)
	measured.P50Ms, measured.P99Ms = percentile(took, 0.50), percentile(took, 0.99)
	return measured, nil
}

type arrival struct {
	sequence int
	at       time.Time
	err      error
}

// forwardArrivals notes the time before the ack is sent: the ack is not part of the latency.
func forwardArrivals(ctx context.Context, pull *pullStream, to chan<- arrival) {
	forward := func(a arrival) error {
		select {
		case to <- a:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		err := pull.next(func(sequence int) error {
			return forward(arrival{sequence: sequence, at: time.Now()})
		})
		if err != nil {
			_ = forward(arrival{err: err})
			return
		}
	}
}

func timeEach(
	ctx context.Context, srv *server, s settings, arrivals <-chan arrival, deadline time.Time,
) ([]time.Duration, error) {
	b, err := newBatch(srv.topic, 1, s.size)
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, s.messages)
	for sequence := 0; sequence < s.messages && time.Now().Before(deadline); sequence++ {
		b.number(sequence)
		started := time.Now()
		if err := srv.publish(ctx, 0, b); err != nil {
			return nil, err
		}
		at, err := awaitArrival(ctx, arrivals, sequence)
		if err != nil {
			return nil, err
		}
		took = append(took, at.Sub(started))
	}
	return took, nil
}

func awaitArrival(ctx context.Context, arrivals <-chan arrival, sequence int) (time.Time, error) {
	for {
		select {
		case a := <-arrivals:
			if a.err != nil {
				return time.Time{}, a.err
			}
			if a.sequence == sequence { // others are redeliveries
				return a.at, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("message %d did not arrive: %w", sequence, ctx.Err())
		}
	}
}

// percentile in milliseconds, by nearest rank; nil when there is nothing to rank.
func percentile(took []time.Duration, share float64) *float64 {
	if len(took) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(took))
	rank := int(math.Ceil(share*float64(len(sorted)))) - 1
	ms := float64(sorted[rank].Microseconds()) / 1000
	return &ms
}
