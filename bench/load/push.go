package main

import (
	"context"
	"sync"
	"time"
)

// measurePush: messages a second from publish to their arrival at a push endpoint that answers at once.
func measurePush(ctx context.Context, s settings) (result, error) {
	return pushEach(ctx, s, noContent, (*server).close)
}

// measureRefuse: an endpoint refuses every message once. Topic and subscription stay: with a long -backoff all messages
// wait there for their next attempt, and what that costs the server can be measured then.
func measureRefuse(ctx context.Context, s settings) (result, error) {
	return pushEach(ctx, s, s.status, (*server).disconnect)
}

// pushEach: messages a second to one endpoint that answers each of them with the status.
func pushEach(ctx context.Context, s settings, status int, leave func(*server)) (result, error) {
	arrived := newCounter(s.messages)
	receiver, err := startReceiver(func(_, sequence int) (int, error) { return status, arrived.mark(sequence) })
	if err != nil {
		return result{}, err
	}
	defer receiver.stop()
	srv, err := open(ctx, s, receiver.url(0))
	if err != nil {
		return result{}, err
	}
	defer leave(srv)
	return countArrivals(ctx, srv, s, receiver, arrived)
}

func countArrivals(ctx context.Context, srv *server, s settings, receiver *receiver, arrived *counter) (result, error) {
	timer := startTimer(s)
	deadline := timer.deadline(s.limit)
	if _, err := publishAll(ctx, srv, s, atOnce, deadline); err != nil {
		return result{}, err
	}
	select {
	case <-arrived.done:
	case <-time.After(time.Until(deadline)):
	}
	distinct, duplicates := arrived.counts()
	measured := timer.result(distinct, s.messages)
	measured.Duplicates = duplicates
	return measured, receiver.failure()
}

// counter is what has arrived at one endpoint, for use by many requests at once.
type counter struct {
	done chan struct{} // closed when every message has arrived

	mutex   sync.Mutex
	arrived *seen
}

func newCounter(messages int) *counter {
	return &counter{done: make(chan struct{}), arrived: newSeen(messages)}
}

func (c *counter) mark(sequence int) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	before := c.arrived.distinct
	if err := c.arrived.mark(sequence); err != nil {
		return err
	}
	if c.arrived.all() && c.arrived.distinct > before {
		close(c.done)
	}
	return nil
}

func (c *counter) counts() (distinct, duplicates int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.arrived.distinct, c.arrived.duplicates
}
