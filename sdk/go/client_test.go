package bbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answer is what a server of these tests does with a request.
type answer func(http.ResponseWriter, *http.Request)

// message answers with a message of the API.
func message(message any) answer {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", contentType)
		writer.Write(encode(message))
	}
}

// status answers as a host does that does not serve the request.
func status(code int, retryAfter string) answer {
	return func(writer http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			writer.Header().Set("Retry-After", retryAfter)
		}
		http.Error(writer, "the reason", code)
	}
}

// broken ends the connection within an answer.
func broken(writer http.ResponseWriter, _ *http.Request) {
	writer.Header().Set("Content-Type", contentType)
	writer.Header().Set("Content-Length", "100")
	writer.Write([]byte("\x12\x01"))
}

// serve starts a server that gives one answer after the other, the last one again and again, and returns a client of it and
// the number of its requests.
func serve(t *testing.T, config Config, answers ...answer) (*Client, *atomic.Int32) {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		at := int(requests.Add(1)) - 1
		if at >= len(answers) {
			at = len(answers) - 1
		}
		answers[at](writer, request)
	}))
	t.Cleanup(server.Close)
	config.URL = server.URL
	if config.RetryInterval == 0 {
		config.RetryInterval = time.Nanosecond
	}
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, &requests
}

func TestCallSendsTheRequestToItsPathAtTheVersion(t *testing.T) {
	client, _ := serve(t, Config{}, func(writer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		found := fmt.Sprintf("%s %s %s %q", request.Method, request.URL, request.Header.Get("Content-Type"), body)
		if expected := `POST /v1.2/desired_lrp/rollback application/x-protobuf "\n\x01a\x12\x01b"`; found != expected {
			t.Errorf("%s instead of %s", found, expected)
		}
		if id := request.Header.Get("X-Vcap-Request-Id"); id != "id-1" {
			t.Errorf("the trace id is %q", id)
		}
		message(&desiredLRPLifecycleResponse{})(writer, request)
	})
	if err := client.RollbackDesiredLRP(WithTraceID(context.Background(), "id-1"), "a", "b"); err != nil {
		t.Error(err)
	}
}

func TestErrorOfTheAnswerIsTypedAndNotRetried(t *testing.T) {
	client, requests := serve(t, Config{}, message(&desiredLRPLifecycleResponse{Error: &Error{Type: 1000, Message: "why"}}))
	err := client.UpdateDesiredLRP(context.Background(), "a", &DesiredLRPUpdate{})
	if !errors.Is(err, ErrUpdateInProgress) || errors.Is(err, ErrNoUpdateInProgress) || requests.Load() != 1 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
	if err.Error() != "UpdateInProgress: why" {
		t.Errorf("%v", err)
	}
}

func TestListReturnsItsContentBesideAnError(t *testing.T) {
	client, _ := serve(t, Config{}, message(&desiredLRPsResponse{
		Error: &Error{Type: ErrorTypeDeserialize}, DesiredLRPs: []*DesiredLRP{{ProcessGuid: "a"}},
	}))
	lrps, err := client.DesiredLRPs(context.Background(), DesiredLRPFilter{})
	if len(lrps) != 1 || !errors.Is(err, &Error{Type: ErrorTypeDeserialize}) {
		t.Errorf("%v, %v", lrps, err)
	}
}

func TestServerErrorsAndBrokenAnswersAreRetried(t *testing.T) {
	routerError := func(writer http.ResponseWriter, _ *http.Request) { writer.Header().Set(routerErrorHeader, "no route") }
	for name, failure := range map[string]answer{"503": status(503, ""), "broken": broken, "router": routerError} {
		client, requests := serve(t, Config{}, failure, failure, message(&actualLRPsResponse{ActualLRPs: []*ActualLRP{{}}}))
		lrps, err := client.ActualLRPs(context.Background(), ActualLRPFilter{})
		if err != nil || len(lrps) != 1 || requests.Load() != 3 {
			t.Errorf("%s: %v, %v after %d requests", name, lrps, err, requests.Load())
		}
		client, requests = serve(t, Config{Attempts: 2}, failure)
		_, err = client.ActualLRPs(context.Background(), ActualLRPFilter{})
		if err == nil || requests.Load() != 2 || !strings.HasPrefix(err.Error(), "actual_lrps/list: ") {
			t.Errorf("%s: %v after %d requests", name, err, requests.Load())
		}
	}
}

func TestStatusErrorHasTheTimeAfterWhichTheHostExpectsToServe(t *testing.T) {
	client, _ := serve(t, Config{}, status(503, "7"))
	var failed *StatusError
	if err := client.Ping(context.Background()); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if *failed != (StatusError{503, 7 * time.Second, "the reason"}) {
		t.Errorf("%+v", failed)
	}
}

func TestRejectedRequestsAndInvalidAnswersAreNotRetried(t *testing.T) {
	damaged := func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", contentType)
		writer.Write([]byte{1})
	}
	html := func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprint(writer, "<html>") }
	for name, failure := range map[string]answer{"404": status(404, ""), "406": status(406, ""), "damaged": damaged, "html": html} {
		client, requests := serve(t, Config{}, failure)
		if err := client.Ping(context.Background()); err == nil || requests.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, requests.Load())
		}
	}
}

func TestContextEndsTheCallAndItsPauses(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client, requests := serve(t, Config{RetryInterval: time.Hour}, func(writer http.ResponseWriter, request *http.Request) {
		defer cancel()
		status(503, "")(writer, request)
	})
	if err := client.Ping(ctx); !errors.Is(err, context.Canceled) || requests.Load() != 1 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}

func TestRequestTimeoutBoundsEachAttempt(t *testing.T) {
	hangs := func(_ http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		<-request.Context().Done()
	}
	client, requests := serve(t, Config{RequestTimeout: 50 * time.Millisecond}, hangs)
	if err := client.Ping(context.Background()); !errors.Is(err, context.DeadlineExceeded) || requests.Load() != 3 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
	if _, err := client.LRPInstanceEvents(context.Background(), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestDefinitionIsFoundAmongThoseOfTheLRP(t *testing.T) {
	client, _ := serve(t, Config{}, message(&lrpDefinitionsResponse{Definitions: []*ArchivedLRPDefinition{
		{Definition: &LRPDefinition{DefinitionID: "b"}}, {Definition: &LRPDefinition{DefinitionID: "a"}, CreatedAt: 5},
	}}))
	if found, err := client.LRPDefinition(context.Background(), "guid", "a"); err != nil || found.CreatedAt != 5 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := client.LRPDefinition(context.Background(), "guid", "c"); !errors.Is(err, ErrDefinitionNotFound) {
		t.Errorf("%v", err)
	}
}

func TestPreviousPartsOfAnLRPAreThoseOfTheDefinition(t *testing.T) {
	lrp := &DesiredLRP{
		ProcessGuid: "guid", Domain: "domain", LogGuid: "new", Instances: 3, MemoryMb: 2, DefinitionID: "version-2",
		Routes: &ProtoRoutes{Routes: map[string][]byte{"r": nil}}, ModificationTag: &ModificationTag{Epoch: "e"},
	}
	previous := &LRPDefinition{
		LogGuid: "old", MemoryMb: 1, DefinitionID: "version-1", CpuWeight: 4, VolumeMounts: []*VolumeMount{{Driver: "nfs"}},
	}
	info := lrp.PreviousDesiredLRPSchedulingInfo(previous)
	key := DesiredLRPKey{ProcessGuid: "guid", Domain: "domain", LogGuid: "old"}
	if info.DesiredLRPKey != key || info.DefinitionID != "version-1" || info.Instances != 3 || info.DesiredLRPResource.MemoryMb != 1 {
		t.Errorf("%+v", info)
	}
	if info.ModificationTag.Epoch != "e" || len(info.Routes.Routes) != 1 || info.VolumePlacement.DriverNames[0] != "nfs" {
		t.Errorf("%+v", info)
	}
	run := lrp.PreviousDesiredLRPRunInfo(previous, time.Unix(0, 9))
	if run.DesiredLRPKey != key || run.DefinitionID != "version-1" || run.CpuWeight != 4 || run.CreatedAt != 9 {
		t.Errorf("%+v", run)
	}
}

func TestMistakesInTheConfigurationAreErrors(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for expected, config := range map[string]Config{
		"is \"127.0.0.1:8889\"; it has to be": {URL: "127.0.0.1:8889"},
		"is \"https://%\"; it has to be":      {URL: "https://%"},
		"certificates are for":                {URL: "http://127.0.0.1:8889", CAFile: text},
		"no certificate in PEM":               {URL: "https://127.0.0.1:8889", CAFile: text},
		"file of authorities cannot be read":  {URL: "https://127.0.0.1:8889", CAFile: text + "?"},
		"certificate and key cannot be used":  {URL: "https://127.0.0.1:8889", CertFile: text},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v instead of %q", err, expected)
		}
	}
}
