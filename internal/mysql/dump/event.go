// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"regexp"
	"strings"

	"yunion.io/x/ocadm/internal/mysql"
)

// copies is the prefix of the names of databases that temporarily hold a copy of another one.
const copies = mysql.OwnersDatabase + "_"

// eventState matches the head of an event up to its state, as SHOW CREATE EVENT writes it.
var eventState = regexp.MustCompile("^(?s)(CREATE (?:DEFINER=.*? )?EVENT `(?:[^`]|``)*` ON SCHEDULE [^`]*? ON COMPLETION (?:NOT )?PRESERVE )" +
	`(ENABLE|DISABLE ON (?:SLAVE|REPLICA)|DISABLE)\b`)

// asleep is the state, in a copy, of an event that is enabled in the original. The server where it was created does not run it.
const asleep = "DISABLE ON SLAVE"

// placed returns the event with the state it needs in the database it goes into. In a copy no event may run, because its body may name the original.
// When the copy replaces the original, events that were enabled there are enabled again. placed is a pure function.
func placed(event []byte, from, into string) []byte {
	m := eventState.FindSubmatchIndex(event)
	was, is := strings.HasPrefix(from, copies), strings.HasPrefix(into, copies)
	if m == nil || was == is {
		return event
	}
	state := string(event[m[4]:m[5]])
	switch {
	case is && state == "ENABLE":
		state = asleep
	case is:
		state = "DISABLE"
	case state != "DISABLE":
		state = "ENABLE"
	}
	return append(append(append([]byte{}, event[:m[4]]...), state...), event[m[5]:]...)
}
