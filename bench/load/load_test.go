package main

import (
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

func TestABatchCarriesItsNumbersAndNothingElseChanges(t *testing.T) {
	b, err := newBatch("projects/p/topics/t", 3, 256)
	if err != nil {
		t.Fatal(err)
	}
	b.number(999_998)
	var request pubsubpb.PublishRequest
	if err := proto.Unmarshal(b.encoded, &request); err != nil {
		t.Fatal(err)
	}
	if len(request.Messages) != 3 || request.Topic != "projects/p/topics/t" {
		t.Fatalf("got %v", &request)
	}
	for i, message := range request.Messages {
		sequence, err := readSequence(message.Data)
		if err != nil || sequence != 999_998+i || len(message.Data) != 256 || len(message.Attributes) != 2 {
			t.Errorf("message %d: %v, %v", i, message, err)
		}
	}
}

func TestReceivedMessagesAreReadAndAcked(t *testing.T) {
	encoded, err := proto.Marshal(&pubsubpb.StreamingPullResponse{
		SubscriptionProperties: &pubsubpb.StreamingPullResponse_SubscriptionProperties{ExactlyOnceDeliveryEnabled: true},
		ReceivedMessages: []*pubsubpb.ReceivedMessage{
			{AckId: "a", Message: &pubsubpb.PubsubMessage{Data: newData(7, 20), MessageId: "1"}, DeliveryAttempt: 3},
			{AckId: "b", Message: &pubsubpb.PubsubMessage{Data: newData(8, 20)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var acks []byte
	var got []int
	err = eachReceived(encoded, func(one received) error {
		sequence, err := readSequence(one.data)
		got = append(got, sequence)
		acks = appendAck(acks, one.ackID)
		return err
	})
	var request pubsubpb.StreamingPullRequest
	if err != nil || fmt.Sprint(got) != "[7 8]" || proto.Unmarshal(acks, &request) != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	if fmt.Sprint(request.AckIds) != "[a b]" {
		t.Errorf("acked %v", request.AckIds)
	}
	if err := eachReceived(encoded[:len(encoded)-1], func(received) error { return nil }); err == nil {
		t.Error("a truncated response was accepted")
	}
}

func TestAnEnvelopeGivesItsSequence(t *testing.T) {
	for _, envelope := range []string{
		`{"message":{"data":"MDAwMDAwMDAwMDQyeHh4","attributes":{"a":"b"}},"subscription":"s"}`,
		"{\n  \"message\": {\n    \"data\" : \"MDAwMDAwMDAwMDQyeHh4\"\n  }\n}",
	} {
		if sequence, err := envelopeSequence([]byte(envelope)); err != nil || sequence != 42 {
			t.Errorf("%s: %d, %v", envelope, sequence, err)
		}
	}
	if _, err := envelopeSequence([]byte(`{"message":{}}`)); err == nil {
		t.Error("an envelope without data was accepted")
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	var took []time.Duration
	for i := 100; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := percentile(took, 0.5), percentile(took, 0.99); *p50 != 50 || *p99 != 99 {
		t.Errorf("p50 %v, p99 %v", *p50, *p99)
	}
	if percentile(nil, 0.5) != nil {
		t.Error("nothing has no percentile")
	}
}

func TestOnlyLoopbackIsLoaded(t *testing.T) {
	if _, err := parse("publish", []string{"-target", "127.0.0.1:1"}); err != nil {
		t.Error(err)
	}
	for _, target := range []string{"192.0.2.1:1", "example.org:1", "127.0.0.1"} {
		if _, err := parse("publish", []string{"-target", target}); err == nil {
			t.Errorf("%s was accepted", target)
		}
	}
}
