/* Counts what CPython asks its allocators for: see guard_allocations.py. Every call is passed on as it is. */
#include <stddef.h>

struct allocator { /* PyMemAllocatorEx */
	void *ctx;
	void *(*malloc)(void *, size_t);
	void *(*calloc)(void *, size_t, size_t);
	void *(*realloc)(void *, void *, size_t);
	void (*free)(void *, void *);
};

int is_counting; /* read and written under the GIL, as all that Python allocates for itself */
unsigned long long blocks, large_bytes;
size_t large = 16384;

static void count(size_t bytes)
{
	if (!is_counting)
		return;
	blocks++;
	if (bytes >= large)
		large_bytes += bytes;
}

void *counting_malloc(void *ctx, size_t bytes)
{
	struct allocator *next = ctx;
	count(bytes);
	return next->malloc(next->ctx, bytes);
}

void *counting_calloc(void *ctx, size_t n, size_t size)
{
	struct allocator *next = ctx;
	count(n * size);
	return next->calloc(next->ctx, n, size);
}

void *counting_realloc(void *ctx, void *block, size_t bytes)
{
	struct allocator *next = ctx;
	count(bytes);
	return next->realloc(next->ctx, block, bytes);
}

void counting_free(void *ctx, void *block)
{
	struct allocator *next = ctx;
	next->free(next->ctx, block);
}
