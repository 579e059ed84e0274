package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	publishMethod       = "/google.pubsub.v1.Publisher/Publish"
	streamingPullMethod = "/google.pubsub.v1.Subscriber/StreamingPull"

	// Far longer than any measurement: a redelivery would be work that the measure is not about.
	ackDeadlineSeconds = 600
)

// server is the broker under load, with one topic and one subscription of our own on it.
type server struct {
	connections  []*grpc.ClientConn
	topic        string
	subscription string
}

// open makes a topic and a subscription; pushTo is empty for a pull subscription.
func open(ctx context.Context, s settings, pushTo string) (*server, error) {
	run := fmt.Sprintf("bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	srv := &server{topic: "projects/bench/topics/" + run, subscription: "projects/bench/subscriptions/" + run}
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
	return srv, srv.create(ctx, pushTo)
}

func (srv *server) create(ctx context.Context, pushTo string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	topics := pubsubpb.NewPublisherClient(srv.connections[0])
	if _, err := topics.CreateTopic(ctx, &pubsubpb.Topic{Name: srv.topic}); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	subscription := &pubsubpb.Subscription{
		Name: srv.subscription, Topic: srv.topic, AckDeadlineSeconds: ackDeadlineSeconds,
	}
	if pushTo != "" {
		subscription.PushConfig = &pubsubpb.PushConfig{PushEndpoint: pushTo}
	}
	subscriptions := pubsubpb.NewSubscriberClient(srv.connections[0])
	if _, err := subscriptions.CreateSubscription(ctx, subscription); err != nil {
		return fmt.Errorf("create subscription: %w", err)
	}
	return nil
}

// close deletes what open made, so that the next measurement finds the server without our backlog. A server that
// refuses is its own affair: the measurement is over.
func (srv *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	first := srv.connections[0]
	_, _ = pubsubpb.NewSubscriberClient(first).DeleteSubscription(ctx,
		&pubsubpb.DeleteSubscriptionRequest{Subscription: srv.subscription})
	_, _ = pubsubpb.NewPublisherClient(first).DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: srv.topic})
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

// stream opens a streaming pull and sends its first request.
func (srv *server) stream(ctx context.Context, outstanding int) (*pullStream, error) {
	description := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	// The last connection, which has the fewest callers.
	connection := srv.connections[len(srv.connections)-1]
	opened, err := connection.NewStream(ctx, description, streamingPullMethod, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	first, err := firstStreamRequest(srv.subscription, outstanding)
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
