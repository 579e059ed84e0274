package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// measurePublish: how many messages a second the server takes from callers that each wait for their answer.
func measurePublish(ctx context.Context, s settings) (result, error) {
	srv, err := open(ctx, s, "")
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	timer := startTimer(s)
	published, err := publishAll(ctx, srv, s, timer.deadline(s.limit))
	if err != nil {
		return result{}, err
	}
	return timer.result(published, s.messages), nil
}

// publishAll sends the messages from all callers until none is left or the time is over; gives how many were answered.
func publishAll(ctx context.Context, srv *server, s settings, deadline time.Time) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, published atomic.Int64
	var callers sync.WaitGroup
	for caller := range s.callers {
		callers.Go(func() {
			if err := publishFrom(ctx, srv, s, caller, &next, &published, deadline); err != nil {
				cancel(err)
			}
		})
	}
	callers.Wait()
	return int(published.Load()), context.Cause(ctx)
}

// publishFrom is one caller: it takes the next free sequence numbers, publishes them, and so on.
func publishFrom(
	ctx context.Context, srv *server, s settings, caller int, next, published *atomic.Int64, deadline time.Time,
) error {
	whole, err := newBatch(srv.topic, s.batch, s.size)
	if err != nil {
		return err
	}
	for time.Now().Before(deadline) {
		first := int(next.Add(int64(s.batch))) - s.batch
		if first >= s.messages {
			return nil
		}
		b := whole
		if left := s.messages - first; left < s.batch {
			if b, err = newBatch(srv.topic, left, s.size); err != nil {
				return err
			}
		}
		b.number(first)
		if err := srv.publish(ctx, caller, b); err != nil {
			return err
		}
		published.Add(int64(len(b.offsets)))
	}
	return nil
}
