package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// measureFanout: one topic, many push subscriptions, every message to each of them. It tells how long a message takes
// to an endpoint that answers, and whether the endpoints are served alike. Endpoints that hang are left out of both.
func measureFanout(ctx context.Context, s settings) (result, error) {
	f := newFanout(s)
	receiver, err := startReceiver(f.take)
	if err != nil {
		return result{}, err
	}
	defer receiver.stop()
	srv, err := open(ctx, s, receiver.urls(s.subscriptions)...)
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	timer := startTimer(s)
	f.started = timer.started
	deadline := timer.deadline(s.limit)
	if _, err := publishAll(ctx, srv, s, newSchedule(timer.started, s.rate, f.accept), deadline); err != nil {
		return result{}, err
	}
	select {
	case <-f.done:
	case <-time.After(time.Until(deadline)):
	}
	measured := timer.result(int(f.arrived.Load()), f.wanted())
	measured.Duplicates = int(f.duplicates.Load())
	f.describe(&measured)
	return measured, receiver.failure()
}

// fanout notes when each message arrived at each subscription that answers.
type fanout struct {
	started  time.Time
	messages int
	warmup   int // so many messages are answered by every endpoint, and their latency does not count
	good     int // subscriptions below this number answer every message

	// Nanoseconds after the start; 0 is not yet.
	accepted []atomic.Int64 // message by message
	times    []atomic.Int64 // of arrival: all of the first subscription, then all of the second, and so on

	arrived    atomic.Int64
	duplicates atomic.Int64
	done       chan struct{} // closed when all have arrived
}

func newFanout(s settings) *fanout {
	good := s.subscriptions - s.hanging
	return &fanout{
		messages: s.messages,
		// An endpoint that hangs from its first request on holds few: here its window has opened before.
		warmup:   s.messages / 10,
		good:     good,
		accepted: make([]atomic.Int64, s.messages),
		times:    make([]atomic.Int64, good*s.messages),
		done:     make(chan struct{}),
	}
}

func (f *fanout) wanted() int {
	return len(f.times)
}

// accept is told when the server has answered a publish.
func (f *fanout) accept(first, messages int) {
	at := int64(time.Since(f.started))
	for sequence := first; sequence < first+messages; sequence++ {
		f.accepted[sequence].Store(at)
	}
}

func (f *fanout) take(subscription, sequence int) (status int, err error) {
	at := time.Since(f.started)
	if sequence < 0 || sequence >= f.messages {
		return never, fmt.Errorf("sequence %d was never sent", sequence)
	}
	if subscription >= f.good {
		if sequence < f.warmup {
			return noContent, nil
		}
		return never, nil
	}
	if !f.times[subscription*f.messages+sequence].CompareAndSwap(0, int64(max(at, 1))) {
		f.duplicates.Add(1)
	} else if f.arrived.Add(1) == int64(f.wanted()) {
		close(f.done)
	}
	return noContent, nil
}

func (f *fanout) describe(r *result) {
	latencies := f.latencies()
	r.P50Ms, r.P99Ms = percentile(latencies, 0.50), percentile(latencies, 0.99)
	if !r.Complete {
		return // who is slow and who is last is not known yet
	}
	lasts, all := f.lasts(), f.all()
	slowest := float64(lasts[len(lasts)-1]) / float64(lasts[len(lasts)/2])
	fairness := jain(f.countsAt(all[len(all)/2]))
	r.SlowestOverMedian, r.FairnessAtHalf = &slowest, &fairness
}

// latencies of everything that has arrived, from when its publish was answered. An arrival may overtake that answer,
// and has then taken no time.
func (f *fanout) latencies() []time.Duration {
	var took []time.Duration
	for index := range f.times {
		sequence := index % f.messages
		if at := f.times[index].Load(); at > 0 && sequence >= f.warmup {
			took = append(took, time.Duration(max(at-f.accepted[sequence].Load(), 0)))
		}
	}
	return took
}

// lasts is when each subscription had everything, the fastest first.
func (f *fanout) lasts() []int64 {
	lasts := make([]int64, f.good)
	for index := range f.times {
		subscription := index / f.messages
		lasts[subscription] = max(lasts[subscription], f.times[index].Load())
	}
	slices.Sort(lasts)
	return lasts
}

// all is when each message arrived anywhere, in order.
func (f *fanout) all() []int64 {
	all := make([]int64, len(f.times))
	for index := range f.times {
		all[index] = f.times[index].Load()
	}
	slices.Sort(all)
	return all
}

// countsAt is how many messages each subscription had at that time.
func (f *fanout) countsAt(at int64) []int {
	counts := make([]int, f.good)
	for index := range f.times {
		if f.times[index].Load() <= at {
			counts[index/f.messages]++
		}
	}
	return counts
}

// jain is Jain's fairness index: 1 when all have the same, one nth when one of n has everything.
func jain(counts []int) float64 {
	sum, squares := 0.0, 0.0
	for _, count := range counts {
		sum += float64(count)
		squares += float64(count) * float64(count)
	}
	if squares == 0 {
		return 1 // nobody has anything
	}
	return sum * sum / (float64(len(counts)) * squares)
}
