// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// TestEventsSleepInCopies checks that no event runs in a copy, and that each gets its state back when the copy replaces the original.
func TestEventsSleepInCopies(t *testing.T) {
	e := setUp(t)
	const head = "CREATE DEFINER=`root`@`localhost` EVENT s.`a b` ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' ON COMPLETION "
	e.run("CREATE DATABASE s", "CREATE TABLE s.t (i INT PRIMARY KEY)", "USE s",
		head+"PRESERVE ENABLE COMMENT 'ON COMPLETION PRESERVE DISABLE' DO INSERT INTO s.t VALUES (1)",
		strings.Replace(head, "`a b`", "off", 1)+"NOT PRESERVE DISABLE DO INSERT INTO s.t VALUES (2)")
	states := func(database string) string {
		return e.cell("SELECT GROUP_CONCAT(EVENT_NAME, '=', REPLACE(STATUS, 'REPLICA_SIDE', 'SLAVESIDE') ORDER BY EVENT_NAME) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = '" + database + "'")
	}
	before, err := Definitions(t.Context(), e.admin, []string{"s"})
	require.NoError(t, err)
	const was, sleeps = "a b=ENABLED,off=DISABLED", "a b=SLAVESIDE_DISABLED,off=DISABLED"
	move := func(from, into string) {
		t.Helper()
		e.run("DROP DATABASE IF EXISTS "+into, "CREATE DATABASE "+into)
		l, err := NewLoader(t.Context(), e.admin, func(string) string { return into })
		require.NoError(t, err)
		defer l.Close()
		if _, err := Dump(t.Context(), e.admin, []string{from}, func(p Piece) error { return l.Load(t.Context(), clone(p)) }); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, l.Finish(t.Context()))
	}
	move("s", "ocadm_saved_1_s")
	if got := states("ocadm_saved_1_s"); got != sleeps {
		t.Errorf("the copy: %s", got)
	}
	move("ocadm_saved_1_s", "ocadm_scratch_1_s")
	if got := states("ocadm_scratch_1_s"); got != sleeps {
		t.Errorf("a copy of the copy: %s", got)
	}
	move("ocadm_saved_1_s", "s")
	if got := states("s"); got != was {
		t.Errorf("brought back: %s", got)
	}
	after, err := Definitions(t.Context(), e.admin, []string{"s"})
	if err != nil || after["s"] != before["s"] {
		t.Errorf("it is defined otherwise than before: %v", err)
	}
	move("s", "other")
	if got := states("other"); got != was {
		t.Errorf("moved: %s", got)
	}
}

func TestPlaced(t *testing.T) {
	for state, want := range map[string][2]string{ // in a copy, and back
		"ENABLE": {"DISABLE ON SLAVE", "ENABLE"}, "DISABLE": {"DISABLE", "DISABLE"}, "DISABLE ON SLAVE": {"DISABLE", "DISABLE"}, "DISABLE ON REPLICA": {"DISABLE", "DISABLE"},
	} {
		event := func(state string) string {
			return "CREATE DEFINER=`a`@`%` EVENT `ON COMPLETION PRESERVE ENABLE` ON SCHEDULE EVERY '1:2' HOUR_MINUTE ON COMPLETION NOT PRESERVE " + state + " DO SET @a = 1"
		}
		copied := placed([]byte(event(state)), "s", "ocadm_saved_1_s")
		if back := placed(copied, "ocadm_saved_1_s", "s"); string(copied) != event(want[0]) || string(back) != event(want[1]) {
			t.Errorf("%s: %s; %s", state, copied, back)
		}
	}
}
