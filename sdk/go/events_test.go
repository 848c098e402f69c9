package bbs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// written returns an event as a host writes it.
func written(number int, name string, event any) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", number, name, base64.StdEncoding.EncodeToString(encode(event)))
}

// streamed answers with the parts of a stream, each of them flushed, and ends it.
func streamed(parts ...string) answer {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, part := range parts {
			io.WriteString(writer, part)
			writer.(http.Flusher).Flush()
		}
	}
}

// subscribe subscribes to a stream that a server answers with.
func subscribe(t *testing.T, answers ...answer) *EventStream {
	t.Helper()
	client, _ := serve(t, Config{}, answers...)
	stream, err := client.LRPInstanceEvents(context.Background(), "cell")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return stream
}

func TestEventsAreReadFromTheStreamInAnyPieces(t *testing.T) {
	lrp := &DesiredLRP{ProcessGuid: strings.Repeat("a", 10_000)}
	halted := &DesiredLRPUpdateStatus{HaltReason: "it crashed"}
	text := written(0, "desired_lrp_created", &DesiredLRPCreatedEvent{DesiredLRP: lrp}) +
		written(1, "something_newer", lrp) +
		written(2, "desired_lrp_changed", &DesiredLRPChangedEvent{UpdateStatus: halted}) +
		strings.ReplaceAll(written(3, "actual_lrp_crashed", &ActualLRPCrashedEvent{CrashCount: 3}), "\n", "\r\n")
	stream := subscribe(t, status(503, ""), streamed(text[:7], text[7:5000], text[5000:]))
	created, err := stream.Next()
	if event, ok := created.(*DesiredLRPCreatedEvent); !ok || event.DesiredLRP.ProcessGuid != lrp.ProcessGuid {
		t.Errorf("%v, %v", created, err)
	}
	changed, err := stream.Next()
	if event, ok := changed.(*DesiredLRPChangedEvent); !ok || event.UpdateStatus.HaltReason != "it crashed" {
		t.Errorf("%v, %v", changed, err)
	}
	crashed, err := stream.Next()
	if event, ok := crashed.(*ActualLRPCrashedEvent); !ok || event.CrashCount != 3 {
		t.Errorf("%v, %v", crashed, err)
	}
	if event, err := stream.Next(); err != io.EOF {
		t.Errorf("%v, %v", event, err)
	}
}

func TestEveryEventOfTheStreamIsReadAsItsType(t *testing.T) {
	names := map[string]string{
		"desired_lrp_created":         "*bbs.DesiredLRPCreatedEvent",
		"desired_lrp_changed":         "*bbs.DesiredLRPChangedEvent",
		"desired_lrp_removed":         "*bbs.DesiredLRPRemovedEvent",
		"actual_lrp_instance_created": "*bbs.ActualLRPInstanceCreatedEvent",
		"actual_lrp_instance_changed": "*bbs.ActualLRPInstanceChangedEvent",
		"actual_lrp_instance_removed": "*bbs.ActualLRPInstanceRemovedEvent",
		"actual_lrp_crashed":          "*bbs.ActualLRPCrashedEvent",
	}
	for name, expected := range names {
		// A field that is unknown to each of them.
		event, err := subscribe(t, streamed(written(0, name, &ActualLRPKey{UnknownFields: "\x98\x7d\x01"}))).Next()
		if found := fmt.Sprintf("%T", event); err != nil || found != expected {
			t.Errorf("%s is %s, %v", name, found, err)
		}
	}
}

func TestCutAndDamagedStreamsAreErrors(t *testing.T) {
	whole := written(0, "desired_lrp_removed", &DesiredLRPRemovedEvent{TraceID: "id"})
	for _, text := range []string{whole[:3], whole[:len(whole)-1], "id: 0\n"} {
		if _, err := subscribe(t, streamed(text)).Next(); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, data := range []string{"", "?", "AQ=="} {
		_, err := subscribe(t, streamed("event: desired_lrp_removed\ndata: "+data+"\n\n")).Next()
		if err == nil || !strings.Contains(err.Error(), "no valid DesiredLRPRemovedEvent") {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestSubscriptionThatIsRejectedIsAnError(t *testing.T) {
	client, requests := serve(t, Config{}, status(404, ""))
	var failed *StatusError
	if _, err := client.LRPInstanceEvents(context.Background(), ""); !errors.As(err, &failed) || failed.Code != 404 || requests.Load() != 1 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}

func TestClosingTheStreamEndsTheWaitForAnEvent(t *testing.T) {
	stream := subscribe(t, func(writer http.ResponseWriter, request *http.Request) {
		streamed("")(writer, request)
		<-request.Context().Done()
	})
	ended := make(chan error)
	go func() {
		_, err := stream.Next()
		ended <- err
	}()
	stream.Close()
	if err := <-ended; err == nil {
		t.Error("there was no event")
	}
}
