package bbs

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"
)

// vectors reads a file of messages that Diego's BBS has written, where the repository is there.
func vectors(t *testing.T, name string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../tests/vectors/" + name)
	if os.IsNotExist(err) {
		t.Skip("the vectors are in the repository alone")
	}
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n")[1:] {
		rows = append(rows, strings.Split(line, "\t"))
	}
	return rows
}

// roundTrip decodes bytes into a message and compares the message, encoded again, with them.
func roundTrip(t *testing.T, name, text string, message any) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := decode(data, message); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if again := encode(message); !bytes.Equal(again, data) {
		t.Errorf("%s: %x became %x", name, data, again)
	}
}

func TestMessagesOfDiegoKeepTheirBytes(t *testing.T) {
	lrps, requests := 0, 0
	for _, row := range vectors(t, "revisions.tsv") {
		if row[1] == "DesiredLRP" {
			for _, text := range row[2:] {
				roundTrip(t, row[0], text, &DesiredLRP{})
				lrps++
			}
		}
	}
	for _, row := range vectors(t, "validation.tsv") {
		switch row[0] {
		case "DesireLRPRequest":
			roundTrip(t, row[3], row[1], &desireLRPRequest{})
		case "UpdateDesiredLRPRequest":
			roundTrip(t, row[3], row[1], &updateDesiredLRPRequest{})
		default:
			continue
		}
		requests++
	}
	if lrps < 10 || requests < 10 {
		t.Errorf("only %d LRPs and %d requests", lrps, requests)
	}
}

func TestMessagesThatAreAlwaysPresentAreWrittenEmpty(t *testing.T) {
	for expected, message := range map[string]any{
		"0a0012001a004a00":     &ActualLRP{},
		"0a0022002a003200":     &DesiredLRPSchedulingInfo{},
		"0a00":                 &DesiredLRPRunInfo{},
		"0a0012001a041a004a00": &ActualLRPInstanceChangedEvent{Before: &ActualLRPInfo{}},
		"0a001200":             &ActualLRPCrashedEvent{},
		"":                     &DesiredLRP{},
		"7a00":                 &DesiredLRP{Routes: &ProtoRoutes{}},
	} {
		if found := hex.EncodeToString(encode(message)); found != expected {
			t.Errorf("%T: %s instead of %s", message, found, expected)
		}
	}
}

func TestAbsenceAndZeroDiffer(t *testing.T) {
	zero := int32(0)
	for _, update := range []*DesiredLRPUpdate{{}, {Instances: &zero}, {Routes: &ProtoRoutes{}}} {
		var again DesiredLRPUpdate
		if err := decode(encode(update), &again); err != nil || !reflect.DeepEqual(&again, update) {
			t.Errorf("%+v became %+v, %v", update, again, err)
		}
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	// Field 2000 as a text, 2001 as a number, and 2002 as fixed numbers of 32 and 64 bits, on both sides of a known one.
	unknown := []string{"827d0178", "887d05", "957d01020304", "917d0102030405060708"}
	data, err := hex.DecodeString(unknown[0] + unknown[1] + "0a0161" + unknown[2] + unknown[3])
	if err != nil {
		t.Fatal(err)
	}
	var key ActualLRPKey
	if err := decode(data, &key); err != nil {
		t.Fatal(err)
	}
	if found := hex.EncodeToString([]byte(key.UnknownFields)); key.ProcessGuid != "a" || found != strings.Join(unknown, "") {
		t.Errorf("%+v, %s", key, found)
	}
	if found := hex.EncodeToString(encode(&key)); found != "0a0161"+strings.Join(unknown, "") {
		t.Errorf("written as %s", found)
	}
	unknownOfAction := &DesiredLRP{Action: &Action{UnknownFields: UnknownFields(data[:4])}}
	var again DesiredLRP
	if err := decode(encode(unknownOfAction), &again); err != nil || !reflect.DeepEqual(&again, unknownOfAction) {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestMapsAreWrittenInTheOrderOfTheirKeys(t *testing.T) {
	network := &Network{Properties: map[string]string{"b": "2", "a": "", "": "3"}}
	const expected = "0a05" + "0a00" + "120133" + "0a05" + "0a0161" + "1200" + "0a06" + "0a0162" + "120132"
	if found := hex.EncodeToString(encode(network)); found != expected {
		t.Errorf("%s instead of %s", found, expected)
	}
	lrp := &DesiredLRP{
		Routes:     &ProtoRoutes{Routes: map[string][]byte{"cf-router": []byte(`[]`)}},
		MetricTags: map[string]*MetricTagValue{"source_id": {Static: "s"}, "index": {Dynamic: MetricTagValueDynamicValueIndex}},
	}
	var again DesiredLRP
	if err := decode(encode(lrp), &again); err != nil || !reflect.DeepEqual(&again, lrp) {
		t.Errorf("%+v, %v", again, err)
	}
	// An entry without a value has the empty one.
	if err := decode([]byte("\x9a\x02\x03\x0a\x01a"), &again); err != nil || again.MetricTags["a"] == nil {
		t.Errorf("%+v, %v", again.MetricTags, err)
	}
}

func TestNumbersAreReadPackedAndNegative(t *testing.T) {
	var lrp DesiredLRP
	if err := decode([]byte("\x70\x01\x72\x03\x02\xac\x02\x70\x03"), &lrp); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(lrp.Ports, []uint32{1, 2, 300, 3}) {
		t.Errorf("%v", lrp.Ports)
	}
	key := ActualLRPKey{Index: -2}
	data := encode(&key)
	if len(data) != 11 {
		t.Errorf("a negative number is written as %x", data)
	}
	var again ActualLRPKey
	if err := decode(data, &again); err != nil || again != key {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestTextIsNotCheckedToBeUTF8(t *testing.T) {
	lrp := &ActualLRP{CrashReason: "\xff\xfe"}
	var again ActualLRP
	if err := decode(encode(lrp), &again); err != nil || again.CrashReason != lrp.CrashReason {
		t.Errorf("%q, %v", again.CrashReason, err)
	}
}

func TestDamagedMessagesAreErrors(t *testing.T) {
	nested := []byte{}
	for depth := 0; depth < 200; depth++ {
		// A field 6 (try) with a field 1 (action) in it.
		nested = appendBytes(nil, 6, appendBytes(nil, 1, nested))
	}
	for name, data := range map[string][]byte{
		"a key alone":           {0x0a},
		"too few bytes":         {0x0a, 5, 1},
		"an endless number":     bytes.Repeat([]byte{0xff}, 11),
		"the number 0":          {0x02, 0},
		"a group":               {0x0b},
		"a number for messages": {0x08, 1},
		"deep nesting":          nested,
	} {
		if err := decode(data, &Action{}); err == nil || !strings.Contains(err.Error(), "Action") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(&DesiredLRP{ProcessGuid: "a", Ports: []uint32{1}, Action: &Action{RunAction: &RunAction{Path: "/a"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var lrp, again DesiredLRP
		if decode(data, &lrp) != nil {
			return
		}
		written := encode(&lrp)
		if err := decode(written, &again); err != nil || !bytes.Equal(encode(&again), written) {
			t.Errorf("%x was written as %x: %v", data, written, err)
		}
	})
}
