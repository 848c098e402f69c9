//go:build integration

// Tests against a host, whose address the environment has. They create and remove LRPs.
package bbs_test

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	bbs "bbs/sdk/go"
)

// patience is far above what the tests take: it is reached only by a hang.
const patience = 2 * time.Minute

// host is a client of the host of the environment, with a subscription.
type host struct {
	*bbs.Client
	ctx    context.Context
	events *bbs.EventStream
}

func connect(t *testing.T, change func(*bbs.Config)) (*bbs.Client, context.Context) {
	t.Helper()
	config := bbs.Config{
		URL:            os.Getenv("BBS_URL"),
		CAFile:         os.Getenv("BBS_CA_FILE"),
		CertFile:       os.Getenv("BBS_CERT_FILE"),
		KeyFile:        os.Getenv("BBS_KEY_FILE"),
		RequestTimeout: patience,
	}
	change(&config)
	client, err := bbs.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		cancel()
		client.Close()
	})
	return client, ctx
}

// until waits for an event until a condition holds.
func (h *host) until(t *testing.T, condition func(*bbs.DesiredLRPUpdateStatus) bool) *bbs.DesiredLRPUpdateStatus {
	t.Helper()
	for {
		status, err := h.DesiredLRPUpdateStatus(h.ctx, "hello")
		if err != nil {
			t.Fatal(err)
		}
		if condition(status) {
			return status
		}
		if _, err := h.events.Next(); err != nil {
			t.Fatalf("%v; the last status was %+v", err, status)
		}
	}
}

// untilComplete waits until no update is under way and all instances run a definition.
func (h *host) untilComplete(t *testing.T, definitionID string) {
	t.Helper()
	h.until(t, func(status *bbs.DesiredLRPUpdateStatus) bool {
		return status.DefinitionID == definitionID && status.PreviousDefinitionID == "" && status.Running == status.Instances
	})
}

// expect fails the test at another error than the expected one, which may be nil.
func expect(t *testing.T, found, expected error) {
	t.Helper()
	if !errors.Is(found, expected) {
		t.Fatalf("%v instead of %v", found, expected)
	}
}

func action(path string) *bbs.Action {
	return &bbs.Action{RunAction: &bbs.RunAction{Path: path, User: "me"}}
}

func definition(id, path string) *bbs.LRPDefinition {
	return &bbs.LRPDefinition{
		DefinitionID: id,
		RootFs:       "preloaded:cflinuxfs4",
		LogGuid:      "log-of-" + id,
		Action:       action(path),
		MetricTags:   map[string]*bbs.MetricTagValue{"source_id": {Static: "hello"}},
	}
}

func lrp() *bbs.DesiredLRP {
	first := definition("version-1", "/bin/true")
	return &bbs.DesiredLRP{
		ProcessGuid: "hello", Domain: "dev", Instances: 3, Annotation: "note",
		Routes:       &bbs.ProtoRoutes{Routes: map[string][]byte{"cf-router": []byte(`[{"hostnames":["hello.example"]}]`)}},
		DefinitionID: first.DefinitionID, RootFs: first.RootFs, LogGuid: first.LogGuid, Action: first.Action, MetricTags: first.MetricTags,
	}
}

// TestUpdates needs a host with cells that run /bin/true and /bin/cat, and at which /bin/false crashes.
//
// The definitions are: version-1, updated to version-2 by the example, and to version-3, which halts; that is cancelled, and
// the LRP rolled back to version-1.
func TestUpdates(t *testing.T) {
	client, ctx := connect(t, func(*bbs.Config) {})
	events, err := client.LRPInstanceEvents(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	hello := &host{client, ctx, events}

	expect(t, hello.Ping(ctx), nil)
	expect(t, hello.DesireLRP(bbs.WithTraceID(ctx, "trace-1"), lrp()), nil)
	expect(t, hello.DesireLRP(ctx, lrp()), bbs.ErrResourceExists)
	expect(t, hello.DesireLRP(ctx, &bbs.DesiredLRP{}), bbs.ErrInvalidRequest)
	event, err := events.Next()
	if created, ok := event.(*bbs.DesiredLRPCreatedEvent); !ok || created.TraceID != "trace-1" || created.DesiredLRP.DefinitionID != "version-1" {
		t.Fatalf("%+v, %v", event, err)
	}
	hello.untilComplete(t, "version-1")

	Example_update()
	hello.untilComplete(t, "version-2")
	instances, err := hello.ActualLRPs(ctx, bbs.ActualLRPFilter{ProcessGuid: "hello"})
	if err != nil || len(instances) != 3 {
		t.Fatalf("%v, %v", instances, err)
	}
	for _, instance := range instances {
		if instance.State != "RUNNING" || instance.DesiredLRPDefinitionID != "version-2" || instance.Routable == nil || !*instance.Routable {
			t.Errorf("%+v", instance)
		}
	}

	expect(t, hello.CancelUpdateDesiredLRP(ctx, "hello"), bbs.ErrNoUpdateInProgress)
	expect(t, hello.UpdateDesiredLRP(ctx, "hello", &bbs.DesiredLRPUpdate{LRPDefinition: definition("version-2", "/bin/false")}), bbs.ErrDefinitionExists)
	expect(t, hello.UpdateDesiredLRP(ctx, "hello", &bbs.DesiredLRPUpdate{LRPDefinition: definition("version-3", "/bin/false")}), nil)
	expect(t, hello.UpdateDesiredLRP(ctx, "hello", &bbs.DesiredLRPUpdate{LRPDefinition: definition("version-4", "/bin/cat")}), bbs.ErrUpdateInProgress)
	expect(t, hello.RollbackDesiredLRP(ctx, "hello", "version-1"), bbs.ErrUpdateInProgress)
	hello.untilHaltedEvent(t)
	status := hello.until(t, func(status *bbs.DesiredLRPUpdateStatus) bool { return status.HaltReason != "" })
	if status.DefinitionID != "version-3" || status.PreviousDefinitionID != "version-2" || status.RunningPrevious != 3 || status.Failing != 1 {
		t.Errorf("%+v", status)
	}
	hello.checkBothDefinitions(t)

	expect(t, hello.CancelUpdateDesiredLRP(ctx, "hello"), nil)
	hello.untilComplete(t, "version-2")
	expect(t, hello.RollbackDesiredLRP(ctx, "hello", "version-9"), bbs.ErrDefinitionNotFound)
	instancesOfUpdate := int32(2)
	expect(t, hello.UpdateDesiredLRP(ctx, "hello", &bbs.DesiredLRPUpdate{Instances: &instancesOfUpdate}), nil)
	expect(t, hello.RollbackDesiredLRP(ctx, "hello", "version-1"), nil)
	hello.untilComplete(t, "version-1")

	lrps, err := hello.DesiredLRPs(ctx, bbs.DesiredLRPFilter{Domain: "dev"})
	if err != nil || len(lrps) != 1 || lrps[0].Instances != 2 || !reflect.DeepEqual(lrps[0].Routes, lrp().Routes) {
		t.Errorf("%+v, %v", lrps, err)
	}
	expect(t, hello.RemoveDesiredLRP(ctx, "hello"), nil)
	_, err = hello.DesiredLRPByProcessGuid(ctx, "hello")
	expect(t, err, bbs.ErrResourceNotFound)
}

// untilHaltedEvent waits for the event of the halted update.
func (h *host) untilHaltedEvent(t *testing.T) {
	t.Helper()
	for {
		event, err := h.events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if changed, ok := event.(*bbs.DesiredLRPChangedEvent); ok && changed.UpdateStatus != nil && changed.UpdateStatus.HaltReason != "" {
			return
		}
	}
}

// checkBothDefinitions checks the definitions and the two scheduling infos during the update from version-2 to version-3.
func (h *host) checkBothDefinitions(t *testing.T) {
	t.Helper()
	updated, err := h.DesiredLRPByProcessGuid(h.ctx, "hello")
	if err != nil || updated.PreviousDefinitionID != "version-2" {
		t.Fatalf("%+v, %v", updated, err)
	}
	infos, err := h.DesiredLRPSchedulingInfos(h.ctx, bbs.DesiredLRPFilter{Domain: "dev"})
	if err != nil || len(infos) != 2 || infos[0].DefinitionID != "version-3" || infos[1].DefinitionID != "version-2" {
		t.Fatalf("%+v, %v", infos, err)
	}
	ofGuid, err := h.DesiredLRPSchedulingInfosByProcessGuid(h.ctx, "hello")
	if err != nil || !reflect.DeepEqual(ofGuid, infos) {
		t.Errorf("%+v, %v", ofGuid, err)
	}
	definitions, err := h.LRPDefinitions(h.ctx, "hello")
	if err != nil || len(definitions) != 3 || definitions[2].Definition.DefinitionID != "version-1" || definitions[2].LastActiveAt == 0 {
		t.Fatalf("%+v, %v", definitions, err)
	}
	previous, err := h.LRPDefinition(h.ctx, "hello", updated.PreviousDefinitionID)
	if err != nil {
		t.Fatal(err)
	}
	if made := updated.PreviousDesiredLRPSchedulingInfo(previous.Definition); !reflect.DeepEqual(&made, infos[1]) {
		t.Errorf("%+v instead of %+v", made, infos[1])
	}
	run := updated.PreviousDesiredLRPRunInfo(previous.Definition, time.Unix(0, previous.CreatedAt))
	if !reflect.DeepEqual(run.Action, action("/bin/cat")) || run.DefinitionID != "version-2" {
		t.Errorf("%+v", run)
	}
}

// TestMutualTLS needs a host that requires the certificates of the environment.
func TestMutualTLS(t *testing.T) {
	client, ctx := connect(t, func(*bbs.Config) {})
	expect(t, client.DesireLRP(ctx, lrp()), nil)
	infos, err := client.DesiredLRPSchedulingInfos(ctx, bbs.DesiredLRPFilter{ProcessGuids: []string{"hello"}})
	if err != nil || len(infos) != 1 || infos[0].DefinitionID != "version-1" {
		t.Errorf("%+v, %v", infos, err)
	}
	expect(t, client.RemoveDesiredLRP(ctx, "hello"), nil)

	anonymous, ctx := connect(t, func(config *bbs.Config) { config.CertFile, config.KeyFile, config.Attempts = "", "", 1 })
	if err := anonymous.Ping(ctx); err == nil {
		t.Error("a client without a certificate was served")
	}
	var unknown x509.UnknownAuthorityError
	foreign, ctx := connect(t, func(config *bbs.Config) { config.CAFile, config.Attempts = "", 1 })
	if err := foreign.Ping(ctx); !errors.As(err, &unknown) {
		t.Errorf("a client that does not know the authority: %v", err)
	}
}
