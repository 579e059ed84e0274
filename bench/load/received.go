package main

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of google.pubsub.v1.
const (
	receivedMessages = 1 // StreamingPullResponse.received_messages
	receivedAckID    = 1 // ReceivedMessage.ack_id
	receivedMessage  = 2 // ReceivedMessage.message
	messageData      = 1 // PubsubMessage.data
	requestAckIDs    = 2 // StreamingPullRequest.ack_ids
)

// received is one message of a StreamingPullResponse; both parts point into the response.
type received struct {
	ackID []byte
	data  []byte
}

// eachReceived calls back for every message in an encoded StreamingPullResponse, reading no more of it than it needs.
func eachReceived(response []byte, do func(received) error) error {
	return eachBytesField(response, func(field protowire.Number, value []byte) error {
		if field != receivedMessages {
			return nil
		}
		one, err := parseReceived(value)
		if err != nil {
			return err
		}
		return do(one)
	})
}

func parseReceived(encoded []byte) (received, error) {
	var one received
	err := eachBytesField(encoded, func(field protowire.Number, value []byte) error {
		switch field {
		case receivedAckID:
			one.ackID = value
		case receivedMessage:
			data, err := lastBytesField(value, messageData)
			one.data = data
			return err
		}
		return nil
	})
	return one, err
}

func lastBytesField(encoded []byte, wanted protowire.Number) (found []byte, err error) {
	err = eachBytesField(encoded, func(field protowire.Number, value []byte) error {
		if field == wanted {
			found = value
		}
		return nil
	})
	return found, err
}

var errMalformed = errors.New("the server sent a malformed message")

// eachBytesField visits the length-delimited fields and skips the others.
func eachBytesField(encoded []byte, visit func(protowire.Number, []byte) error) error {
	for len(encoded) > 0 {
		field, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return errMalformed
		}
		encoded = encoded[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, encoded); n < 0 {
				return errMalformed
			}
			encoded = encoded[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(encoded)
		if n < 0 {
			return errMalformed
		}
		if err := visit(field, value); err != nil {
			return err
		}
		encoded = encoded[n:]
	}
	return nil
}

// appendAck adds one ack id to an encoded StreamingPullRequest.
func appendAck(request, ackID []byte) []byte {
	request = protowire.AppendTag(request, requestAckIDs, protowire.BytesType)
	return protowire.AppendBytes(request, ackID)
}
