/* The reader's side of the notes. */
#include "notes.h"

bool notes_take(struct notes *notes, struct note *note)
{
	if (!notes->count)
		return false;
	*note = notes->ring[notes->first];
	notes->first = (notes->first + 1) & (NOTES - 1);
	notes->count--;
	return true;
}

__u64 notes_lost(const struct notes *notes)
{
	return notes->lost;
}
