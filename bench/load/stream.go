package main

import (
	"context"
	"errors"

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

// measureStream: messages a second from publish to ack. The server lets no more than -outstanding be unacked, so the
// time covers its handling of all acks but the last few.
func measureStream(ctx context.Context, s settings) (result, error) {
	srv, err := open(ctx, s, "")
	if err != nil {
		return result{}, err
	}
	defer srv.close()
	timer := startTimer(s)
	deadline := timer.deadline(s.limit)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	pull, err := srv.stream(ctx, s.outstanding)
	if err != nil {
		return result{}, err
	}
	publishing := make(chan error, 1)
	go func() {
		_, err := publishAll(ctx, srv, s, atOnce, deadline)
		publishing <- err
	}()
	arrived := newSeen(s.messages)
	for !arrived.all() {
		if err := pull.next(arrived.mark); err != nil {
			if outOfTime(ctx) {
				break
			}
			return result{}, err
		}
	}
	measured := timer.result(arrived.distinct, s.messages)
	measured.Duplicates = arrived.duplicates
	if err := <-publishing; err != nil && !outOfTime(ctx) {
		return result{}, err
	}
	return measured, nil
}

func outOfTime(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded)
}
