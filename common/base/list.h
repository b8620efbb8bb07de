/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list with a head, as in the Linux kernel. The owner of the structs owns
 * the list; nothing here allocates or locks.
 */
#ifndef LEAT_COMMON_BASE_LIST_H
#define LEAT_COMMON_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/assert.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_(struct list *n, struct list *prev, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_push(struct list *head, struct list *n)
{
	list_insert_(n, head->prev, head);
}

static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_(n, head, head->next);
}

/* Removes n from its list. Safe on a member that was removed or initialised and is in no list. */
static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* Removes and returns the first member, or returns NULL if the list is empty. */
static inline struct list *list_pop(struct list *head)
{
	struct list *n = head->next;
	if (n == head)
		return NULL;
	list_remove(n);
	return n;
}

/* Appends all members of from, which becomes empty, to `to`. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_for_each(pos, head) \
	for (struct list *pos = (head)->next; pos != (head); pos = pos->next)
/* The body may remove pos. */
#define list_for_each_safe(pos, head) \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head); \
	     pos = pos##_next, pos##_next = pos->next)

#endif
