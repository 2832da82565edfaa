// Uses RocketMQ's own Go client, unmodified, and prints the results as one line of JSON.
//
// Arguments: endpoint, user and secret (may be empty), and a command: `all` uses each feature,
// `burst TOPIC COUNT IN_FLIGHT` sends, `push GROUP TOPIC COUNT` consumes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const topic = "orders"

var (
	arguments = os.Args[1:]
	start     = time.Now()
	both      = map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL, "other": rmq.SUB_ALL}
)

func main() {
	rmq.ResetLogger()
	rmq.EnableSsl = arguments[1] != ""
	var found any
	switch arguments[3] {
	case "all":
		found = map[string]any{
			"sent": send(), "simple": receive(7), "standard": push("standard", both, 8), "fifo": push("fifo", both, 8),
		}
	case "burst":
		found = burst(arguments[4], number(arguments[5]), number(arguments[6]))
	default:
		one := map[string]*rmq.FilterExpression{arguments[5]: rmq.SUB_ALL}
		found = push(arguments[4], one, number(arguments[6]))
	}
	line, _ := json.Marshal(found)
	fmt.Println(string(line))
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func until(holds func() bool) {
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			check(fmt.Errorf("nothing came"))
		}
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint: arguments[0], ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{AccessKey: arguments[1], AccessSecret: arguments[2]},
	}
}

func message(topic, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func sent(producer rmq.Producer, message *rmq.Message) *rmq.SendReceipt {
	found, err := producer.Send(context.Background(), message)
	check(err)
	return found[0]
}

func send() map[string]any {
	var lock sync.Mutex
	checked := 0
	checker := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution {
		lock.Lock()
		defer lock.Unlock()
		checked++
		return rmq.COMMIT
	}}
	producer, err := rmq.NewProducer(config(""), rmq.WithTransactionChecker(checker), rmq.WithTopics(topic, "other"))
	check(err)
	check(producer.Start())
	normal := message(topic, "normal")
	normal.SetTag("a")
	normal.SetKeys("k")
	first := sent(producer, normal)
	for i := 0; i < 3; i++ {
		one := message(topic, fmt.Sprintf("fifo-%d", i))
		one.SetMessageGroup("group")
		sent(producer, one)
	}
	late := message(topic, "recalled")
	late.SetDelayTimestamp(time.Now().Add(time.Minute))
	receipt := sent(producer, late)
	recalled, err := producer.Recall(context.Background(), topic, receipt.RecallHandle)
	check(err)
	later := message(topic, "later")
	later.SetDelayTimestamp(time.Now().Add(time.Second))
	sent(producer, later)
	for _, name := range []string{"commit", "rollback", "check"} {
		transaction := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(context.Background(), message(topic, name), transaction)
		check(err)
		if name == "commit" {
			check(transaction.Commit())
		} else if name == "rollback" {
			check(transaction.RollBack())
		}
	}
	until(func() bool { lock.Lock(); defer lock.Unlock(); return checked > 0 })
	time.Sleep(500 * time.Millisecond) // The answer to the check.
	return map[string]any{
		"sameId": first.MessageID != "", "recalled": recalled == receipt.MessageID, "checked": checked,
	}
}

func receive(count int) []string {
	consumer, err := rmq.NewSimpleConsumer(config("simple"),
		rmq.WithSimpleAwaitDuration(2*time.Second), rmq.WithSimpleSubscriptionExpressions(both))
	check(err)
	check(consumer.Start())
	var seen []string
	until(func() bool {
		found, _ := consumer.Receive(context.Background(), 20, 15*time.Second) // No message is an error.
		for _, one := range found {
			seen = append(seen, string(one.GetBody()))
			check(consumer.Ack(context.Background(), one))
		}
		return len(seen) >= count
	})
	return seen
}

// The first delivery of the message "normal" fails.
func push(group string, subscriptions map[string]*rmq.FilterExpression, count int) [][]any {
	var lock sync.Mutex
	var seen [][]any
	listener := &rmq.FuncMessageListener{Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		body, attempt := string(message.GetBody()), message.GetDeliveryAttempt()
		seen = append(seen, []any{body, attempt, time.Since(start).Seconds()})
		if body == "normal" && attempt == 1 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer, err := rmq.NewPushConsumer(config(group), rmq.WithPushAwaitDuration(20*time.Second),
		rmq.WithPushSubscriptionExpressions(subscriptions), rmq.WithPushMessageListener(listener))
	check(err)
	check(consumer.Start())
	until(func() bool { lock.Lock(); defer lock.Unlock(); return len(seen) >= count })
	lock.Lock()
	defer lock.Unlock()
	return seen
}

// Sends messages with so many calls at a time, and repeats those that fail.
func burst(topic string, count, inFlight int) map[string]any {
	producer, err := rmq.NewProducer(config(""), rmq.WithTopics(topic))
	check(err)
	check(producer.Start())
	var lock sync.Mutex
	free, errors := make(chan bool, inFlight), map[string]int{}
	var left []int
	for i := 0; i < count; i++ {
		left = append(left, i)
	}
	for len(left) > 0 {
		var failed []int
		var running sync.WaitGroup
		for _, one := range left {
			free <- true
			running.Add(1)
			producer.SendAsync(context.Background(), message(topic, strconv.Itoa(one)),
				func(_ context.Context, _ []*rmq.SendReceipt, err error) {
					if err != nil {
						lock.Lock()
						failed = append(failed, one)
						errors[fmt.Sprintf("%T", err)]++
						lock.Unlock()
					}
					<-free
					running.Done()
				})
		}
		running.Wait()
		left = failed
	}
	return map[string]any{"sent": count, "errors": errors}
}
