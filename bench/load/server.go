package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	publishMethod       = "/google.pubsub.v1.Publisher/Publish"
	streamingPullMethod = "/google.pubsub.v1.Subscriber/StreamingPull"

	// Far longer than any measurement: a redelivery would be work that the measure is not about.
	ackDeadlineSeconds = 600
)

// server is the broker under load, with one topic and subscriptions of our own on it.
type server struct {
	connections   []*grpc.ClientConn
	topic         string
	subscriptions []string
}

// open makes a topic and a subscription for each endpoint; an empty one stands for a pull subscription.
func open(ctx context.Context, s settings, endpoints ...string) (*server, error) {
	run := fmt.Sprintf("bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	srv := &server{topic: "projects/bench/topics/" + run}
	for number := range endpoints {
		srv.subscriptions = append(srv.subscriptions, fmt.Sprintf("projects/bench/subscriptions/%s-%d", run, number))
	}
	for range s.connections {
		connection, err := grpc.NewClient("passthrough:///"+s.target,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// Windows that never close for us: the flow control that is measured is Pub/Sub's own.
			grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(32<<20),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			return nil, err
		}
		srv.connections = append(srv.connections, connection)
	}
	return srv, srv.create(ctx, s, endpoints)
}

func (srv *server) create(ctx context.Context, s settings, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topics := pubsubpb.NewPublisherClient(srv.connections[0])
	if _, err := topics.CreateTopic(ctx, &pubsubpb.Topic{Name: srv.topic}); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	subscriptions := pubsubpb.NewSubscriberClient(srv.connections[0])
	return inParallel(len(endpoints), func(number int) error {
		_, err := subscriptions.CreateSubscription(ctx, srv.describe(s, number, endpoints[number]))
		if err != nil {
			return fmt.Errorf("create subscription: %w", err)
		}
		return nil
	})
}

func (srv *server) describe(s settings, number int, endpoint string) *pubsubpb.Subscription {
	subscription := &pubsubpb.Subscription{
		Name: srv.subscriptions[number], Topic: srv.topic, AckDeadlineSeconds: ackDeadlineSeconds,
	}
	if endpoint != "" {
		subscription.PushConfig = &pubsubpb.PushConfig{PushEndpoint: endpoint}
	}
	if s.backoff > 0 {
		backoff := durationpb.New(time.Duration(s.backoff) * time.Second)
		subscription.RetryPolicy = &pubsubpb.RetryPolicy{
			MinimumBackoff: backoff, MaximumBackoff: backoff,
		}
	}
	return subscription
}

// inParallel calls for every number below count, a few at a time, and gives one of the errors: a server that gathers
// calls into one commit makes a thousand subscriptions in a fraction of the time that one after the other take.
func inParallel(count int, do func(number int) error) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, 1)
	for range min(count, 16) {
		workers.Go(func() {
			for number := int(next.Add(1)) - 1; number < count; number = int(next.Add(1)) - 1 {
				if err := do(number); err != nil {
					select {
					case failed <- err:
					default: // another one is told already
					}
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return <-failed
}

// close deletes what open made, so that the next measurement finds the server without our backlog. A server that
// refuses is its own affair: the measurement is over.
func (srv *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	first := srv.connections[0]
	subscriptions := pubsubpb.NewSubscriberClient(first)
	_ = inParallel(len(srv.subscriptions), func(number int) error {
		_, err := subscriptions.DeleteSubscription(ctx,
			&pubsubpb.DeleteSubscriptionRequest{Subscription: srv.subscriptions[number]})
		return err
	})
	_, _ = pubsubpb.NewPublisherClient(first).DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: srv.topic})
	srv.disconnect()
}

// disconnect leaves topic and subscriptions where they are.
func (srv *server) disconnect() {
	for _, connection := range srv.connections {
		_ = connection.Close()
	}
}

// connection gives callers a connection each, in turn.
func (srv *server) connection(caller int) *grpc.ClientConn {
	return srv.connections[caller%len(srv.connections)]
}

func (srv *server) publish(ctx context.Context, caller int, b *batch) error {
	var response []byte
	return srv.connection(caller).Invoke(ctx, publishMethod, &b.encoded, &response, grpc.ForceCodecV2(rawCodec{}))
}

// stream opens a streaming pull from a subscription and sends its first request.
func (srv *server) stream(ctx context.Context, number, outstanding int) (*pullStream, error) {
	description := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	// The last connection, which has the fewest callers.
	connection := srv.connections[len(srv.connections)-1]
	opened, err := connection.NewStream(ctx, description, streamingPullMethod, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	first, err := firstStreamRequest(srv.subscriptions[number], outstanding)
	if err != nil {
		return nil, err
	}
	return &pullStream{stream: opened}, opened.SendMsg(&first)
}

// rawCodec passes encoded messages through: both sides of a call are *[]byte.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	encoded, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not encoded", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*encoded)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	encoded, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T cannot take bytes", v)
	}
	*encoded = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }
