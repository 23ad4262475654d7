/* A thread that makes opened queues run. One writes its queue, the other reads it. */
#include "kicker.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void await(sem_t *semaphore)
{
	while (sem_wait(semaphore))
		; /* EINTR */
}

static void do_kick(struct kick *kick)
{
	int error;

	__atomic_store_n(&kick->waiting, false, __ATOMIC_SEQ_CST);
	error = kick_now(&kick->target);
	if (error)
		__atomic_store_n(&kick->error, error, __ATOMIC_RELAXED);
}

static void *run(void *argument)
{
	struct kicker *kicker = argument;
	struct sched_param parameters = {.sched_priority = kicker->priority};

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters); /* where not: slower */
	for (;;) {
		struct kick *kick;
		await(&kicker->work);
		kick = kicker->queue[kicker->tail & (WAITING_KICKS - 1)];
		__atomic_store_n(&kicker->tail, kicker->tail + 1, __ATOMIC_RELEASE);
		if (!kick)
			return NULL;
		if (kick->done) {
			sem_post(kick->done);
			continue;
		}
		do_kick(kick);
	}
}

struct kicker *kicker_new(int priority)
{
	struct kicker *kicker = calloc(1, sizeof(*kicker));
	sigset_t all, before;
	int error;

	if (!kicker)
		return NULL;
	kicker->priority = priority;
	sem_init(&kicker->work, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the thread that waits */
	error = pthread_create(&kicker->thread, NULL, run, kicker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return kicker;
	sem_destroy(&kicker->work);
	free(kicker);
	return NULL;
}

/* False: the queue is full. */
static bool append(struct kicker *kicker, struct kick *kick)
{
	if (kicker->head - __atomic_load_n(&kicker->tail, __ATOMIC_ACQUIRE) == WAITING_KICKS)
		return false;
	kicker->queue[kicker->head++ & (WAITING_KICKS - 1)] = kick;
	sem_post(&kicker->work);
	return true;
}

void kicker_kick(struct kicker *kicker, struct kick *kick)
{
	if (__atomic_exchange_n(&kick->waiting, true, __ATOMIC_SEQ_CST) || append(kicker, kick))
		return;
	do_kick(kick);
}

void kicker_drain(struct kicker *kicker)
{
	sem_t done;
	struct kick barrier = {.done = &done};

	sem_init(&done, 0, 0);
	while (!append(kicker, &barrier))
		usleep(100); /* no yield: the thread has the lower priority */
	await(&done);
	sem_destroy(&done);
}

void kicker_free(struct kicker *kicker)
{
	if (!kicker)
		return;
	kicker_drain(kicker);
	append(kicker, NULL);
	pthread_join(kicker->thread, NULL);
	sem_destroy(&kicker->work);
	free(kicker);
}
