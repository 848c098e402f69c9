package bbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	bbs "bbs/sdk/go"
)

// Updates an LRP to another definition, and waits until all of its instances run it. If it is halted, because an instance of the
// definition does not stay up, it is cancelled.
func Example_update() {
	ctx := context.Background()
	client, err := bbs.New(bbs.Config{
		URL:      os.Getenv("BBS_URL"),
		CAFile:   os.Getenv("BBS_CA_FILE"),
		CertFile: os.Getenv("BBS_CERT_FILE"),
		KeyFile:  os.Getenv("BBS_KEY_FILE"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// Before the update, so that no event is missed.
	events, err := client.LRPInstanceEvents(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()

	const wanted = "version-2"
	err = client.UpdateDesiredLRP(ctx, "hello", &bbs.DesiredLRPUpdate{
		LRPDefinition: &bbs.LRPDefinition{
			DefinitionID: wanted,
			RootFs:       "preloaded:cflinuxfs4",
			Action:       &bbs.Action{RunAction: &bbs.RunAction{Path: "/bin/cat", User: "me"}},
			MetricTags:   map[string]*bbs.MetricTagValue{"source_id": {Static: "hello"}},
		},
	})
	if errors.Is(err, bbs.ErrUpdateInProgress) {
		// The call may have begun it itself, at an attempt whose answer was lost.
		var status *bbs.DesiredLRPUpdateStatus
		status, err = client.DesiredLRPUpdateStatus(ctx, "hello")
		if err == nil && status.DefinitionID != wanted {
			log.Fatal("another update is under way: wait for it, or cancel it")
		}
	}
	if err != nil {
		log.Fatal(err)
	}

	for {
		status, err := client.DesiredLRPUpdateStatus(ctx, "hello")
		if err != nil {
			log.Fatal(err)
		}
		if status.PreviousDefinitionID == "" {
			fmt.Printf("%d instances run %s\n", status.Running, status.DefinitionID)
			return
		}
		if status.HaltReason != "" && !status.Cancelled {
			fmt.Printf("cancelled: %s\n", status.HaltReason)
			if err := client.CancelUpdateDesiredLRP(ctx, "hello"); err != nil {
				log.Fatal(err)
			}
		}
		if _, err := events.Next(); err != nil {
			log.Fatal(err)
		}
	}
}
