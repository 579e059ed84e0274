// Drives the official Go client against the broker that PUBSUB_EMULATOR_HOST names, and prints what it saw as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

const (
	project      = "go-client"
	topic        = "projects/go-client/topics/orders"
	subscription = "projects/go-client/subscriptions/worker"
	keys         = 5
	perKey       = 20
)

type report struct {
	Received    int              `json:"received"`
	Duplicates  int              `json:"duplicates"`
	ByKey       map[string][]int `json:"byKey"`
	AckFailures int              `json:"ackFailures"`
	NackedAgain bool             `json:"nackedAgain"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := pubsub.NewClient(ctx, project)
	check(err)
	defer client.Close()
	create(ctx, client)
	publish(ctx, client)
	check(json.NewEncoder(os.Stdout).Encode(receive(ctx, client)))
}

func create(ctx context.Context, client *pubsub.Client) {
	_, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic})
	check(err)
	_, err = client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
		Name: subscription, Topic: topic, EnableMessageOrdering: true, EnableExactlyOnceDelivery: true,
	})
	check(err)
}

func publish(ctx context.Context, client *pubsub.Client) {
	publisher := client.Publisher("orders")
	publisher.EnableMessageOrdering = true
	var results []*pubsub.PublishResult
	for number := range perKey {
		for key := range keys {
			results = append(results, publisher.Publish(ctx, &pubsub.Message{
				Data: []byte(fmt.Sprint(number)), OrderingKey: fmt.Sprint("key-", key),
				Attributes: map[string]string{"number": fmt.Sprint(number)},
			}))
		}
	}
	for _, result := range results {
		_, err := result.Get(ctx)
		check(err)
	}
	publisher.Stop()
}

func receive(ctx context.Context, client *pubsub.Client) report {
	seen := report{ByKey: map[string][]int{}}
	ids := map[string]bool{}
	nacked := ""
	var lock sync.Mutex
	receiving, done := context.WithCancel(ctx)
	defer done()
	err := client.Subscriber("worker").Receive(receiving, func(ctx context.Context, message *pubsub.Message) {
		lock.Lock()
		defer lock.Unlock()
		if nacked == "" { // the very first delivery is refused once
			nacked = message.ID
			message.Nack()
			return
		}
		seen.NackedAgain = seen.NackedAgain || message.ID == nacked
		if status, err := message.AckWithResult().Get(ctx); err != nil || status != pubsub.AcknowledgeStatusSuccess {
			seen.AckFailures++
			return
		}
		if ids[message.ID] {
			seen.Duplicates++
		}
		ids[message.ID] = true
		var number int
		fmt.Sscan(string(message.Data), &number)
		seen.ByKey[message.OrderingKey] = append(seen.ByKey[message.OrderingKey], number)
		if seen.Received++; seen.Received == keys*perKey {
			done()
		}
	})
	check(err)
	return seen
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
