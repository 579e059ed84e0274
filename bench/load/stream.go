package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// pullStream is an open streaming pull that acks on the stream what it receives.
type pullStream struct {
	stream grpc.ClientStream
	acks   []byte
}

func firstStreamRequest(subscription string, outstanding int) ([]byte, error) {
	return proto.Marshal(&pubsubpb.StreamingPullRequest{
		Subscription:             subscription,
		StreamAckDeadlineSeconds: ackDeadlineSeconds,
		MaxOutstandingMessages:   int64(outstanding),
	})
}

// next receives one response, hands out the sequence number of each message in it, then acks them in one request.
func (p *pullStream) next(do func(sequence int) error) error {
	var response []byte
	if err := p.stream.RecvMsg(&response); err != nil {
		return err
	}
	// Not the buffer of the last call: gRPC may not have sent that one yet.
	p.acks = make([]byte, 0, len(p.acks))
	err := eachReceived(response, func(one received) error {
		sequence, err := readSequence(one.data)
		if err != nil {
			return err
		}
		p.acks = appendAck(p.acks, one.ackID)
		return do(sequence)
	})
	if err != nil || len(p.acks) == 0 {
		return err
	}
	return p.stream.SendMsg(&p.acks)
}

// measureStream: messages a second from publish to ack, each to every subscription. The server lets no more than
// -outstanding be unacked, so the time covers its handling of all acks but the last few.
func measureStream(ctx context.Context, s settings) (result, error) {
	srv, err := open(ctx, s, make([]string, s.subscriptions)...)
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	timer := startTimer(s)
	deadline := timer.deadline(s.limit)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	publishing := make(chan error, 1)
	go func() {
		_, err := publishAll(ctx, srv, s, atOnce, deadline)
		publishing <- err
	}()
	measured, err := receiveAll(ctx, srv, s, timer)
	if err != nil {
		return result{}, err
	}
	if err := <-publishing; err != nil && !outOfTime(ctx) {
		return result{}, err
	}
	return measured, nil
}

// measureDrain: messages a second to ack of those that all wait already when the stream is opened.
func measureDrain(ctx context.Context, s settings) (result, error) {
	srv, err := open(ctx, s, make([]string, s.subscriptions)...)
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	waiting, err := publishAll(ctx, srv, s, atOnce, time.Now().Add(s.limit))
	if err != nil {
		return result{}, err
	}
	if waiting < s.messages {
		return result{}, fmt.Errorf("only %d of %d messages were published in time", waiting, s.messages)
	}
	timer := startTimer(s)
	ctx, cancel := context.WithDeadline(ctx, timer.deadline(s.limit))
	defer cancel()
	return receiveAll(ctx, srv, s, timer)
}

// receiveAll opens a stream for each subscription and reads until every one has had every message.
func receiveAll(ctx context.Context, srv *server, s settings, timer timer) (result, error) {
	arrived := make([]*seen, s.subscriptions)
	failures := make([]error, s.subscriptions)
	var streams sync.WaitGroup
	for number := range arrived {
		arrived[number] = newSeen(s.messages)
		streams.Go(func() { failures[number] = receiveFrom(ctx, srv, number, s.outstanding, arrived[number]) })
	}
	streams.Wait()
	if err := errors.Join(failures...); err != nil {
		return result{}, err
	}
	distinct, duplicates := 0, 0
	for _, one := range arrived {
		distinct += one.distinct
		duplicates += one.duplicates
	}
	measured := timer.result(distinct, s.messages*s.subscriptions)
	measured.Duplicates = duplicates
	return measured, nil
}

// receiveFrom ends early, and without an error, when the time is over.
func receiveFrom(ctx context.Context, srv *server, number, outstanding int, arrived *seen) error {
	pull, err := srv.stream(ctx, number, outstanding)
	for err == nil && !arrived.all() {
		err = pull.next(arrived.mark)
	}
	if outOfTime(ctx) {
		return nil
	}
	return err
}

func outOfTime(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded)
}
