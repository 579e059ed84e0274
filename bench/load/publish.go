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
	published, err := publishAll(ctx, srv, s, atOnce, timer.deadline(s.limit))
	if err != nil {
		return result{}, err
	}
	return timer.result(published, s.messages), nil
}

// schedule says when each batch is to be published, and hears when the server has taken it.
type schedule struct {
	started  time.Time
	gap      time.Duration
	accepted func(first, messages int) // may be nil; called by all callers
}

// atOnce lets every caller publish as soon as its last call was answered.
var atOnce = schedule{}

func newSchedule(started time.Time, perSecond int, accepted func(first, messages int)) schedule {
	plan := schedule{started: started, accepted: accepted}
	if perSecond > 0 {
		plan.gap = time.Second / time.Duration(perSecond)
	}
	return plan
}

// wait does not care how long the last answer took: a server that is late does not get less to do for it.
func (plan schedule) wait(ctx context.Context, batch int) {
	if plan.gap == 0 {
		return
	}
	select {
	case <-time.After(time.Until(plan.started.Add(time.Duration(batch) * plan.gap))):
	case <-ctx.Done(): // the publish that follows fails with the reason
	}
}

func (plan schedule) taken(first, messages int) {
	if plan.accepted != nil {
		plan.accepted(first, messages)
	}
}

// publishAll sends the messages from all callers until none is left or the time is over; gives how many were answered.
func publishAll(ctx context.Context, srv *server, s settings, plan schedule, deadline time.Time) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, published atomic.Int64
	var callers sync.WaitGroup
	for caller := range s.callers {
		callers.Go(func() {
			if err := publishFrom(ctx, srv, s, caller, &next, &published, plan, deadline); err != nil {
				cancel(err)
			}
		})
	}
	callers.Wait()
	return int(published.Load()), context.Cause(ctx)
}

// publishFrom is one caller: it takes the next free sequence numbers, publishes them, and so on.
func publishFrom(
	ctx context.Context, srv *server, s settings, caller int, next, published *atomic.Int64, plan schedule,
	deadline time.Time,
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
		plan.wait(ctx, first/s.batch)
		b.number(first)
		if err := srv.publish(ctx, caller, b); err != nil {
			return err
		}
		plan.taken(first, len(b.offsets))
		published.Add(int64(len(b.offsets)))
	}
	return nil
}
