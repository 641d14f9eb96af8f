/* intattention: integer attention and int4/int8 LLM inference on CPUs. The stable C interface.
 *
 * Errors. Functions return ia_status; anything but IA_OK leaves outputs unspecified (never a half-made handle) and
 * ia_last_error() says what was wrong, with the numbers. No exception, abort or print comes out of the library.
 *
 * Handles. Opaque, made by ia_*_create or _load, ended by ia_*_destroy, which takes the address of the handle and sets
 * it to NULL, so that destroying twice through one variable does nothing. A handle of another kind, or a null one,
 * gives IA_INVALID_ARGUMENT. A handle keeps alive what it was made from; destroy in any order.
 *
 * Threads. Functions may be called from any thread. A context, a model and a linear may be used from several threads
 * at once (their calls take turns at the context's threads). A cache or a sampler serves one call at a time: a second
 * one at the same moment gives IA_BUSY and changes nothing. Destroying what another thread uses is undefined.
 *
 * Enumerations are int32_t, so that their size is the same everywhere and any value may be passed (and refused).
 *
 * Sizes are in elements, strides in bytes. Integers are size_t or int32_t ids. All structs begin zeroed: a zero means
 * the default; set struct_size = sizeof of the struct, which lets later versions add fields.
 *
 * Compatibility. IA_VERSION is 10000 * major + 100 * minor + patch; functions stay within one major version.
 */
#ifndef INTATTENTION_H
#define INTATTENTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(IA_BUILDING) && defined(__GNUC__)
#define IA_API __attribute__((visibility("default")))
#else
#define IA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define IA_VERSION 100 /* 0.1.0 */

typedef int32_t ia_status;
enum {
  IA_OK = 0,
  IA_INVALID_ARGUMENT = 1, /* a null or wrong handle, a size, a value: see the message */
  IA_OUT_OF_MEMORY = 2,
  IA_UNSUPPORTED_ISA = 3,   /* INTATTENTION_ISA names kernels that are not built or not runnable */
  IA_UNSUPPORTED_MODEL = 4, /* a model file of another version, layout or kind */
  IA_IO = 5,                /* a file cannot be opened */
  IA_BAD_FILE = 6,          /* a model file is damaged */
  IA_CONTEXT_OVERFLOW = 7,  /* more tokens than the cache may hold */
  IA_NUMERIC = 8,           /* NaN or Inf appeared in a model */
  IA_CANCELLED = 9,         /* a cancel callback returned nonzero */
  IA_BUSY = 10,             /* the cache or sampler is in use by another thread */
  IA_INTERNAL = 11
};

/* ---- version, errors, instruction sets; all callable at any time ---------------------------------------------- */

IA_API unsigned ia_version(void);                    /* IA_VERSION of the library */
IA_API const char* ia_status_name(ia_status status); /* "IA_OK", ...; never NULL */
IA_API const char* ia_last_error(void);              /* of this thread's last failed call; "" at first; valid until the
                                                        thread's next call */
/* Name of the kernels that run: "portable", "neon", "dotprod", "i8mm", "avx2", "avx512vnni", ... The first runnable
 * one, or the one that the environment variable INTATTENTION_ISA names. IA_UNSUPPORTED_ISA if that cannot run. */
IA_API ia_status ia_active_isa(const char** name);
/* Kernels that this CPU can run, best first; NULL past the last. */
IA_API const char* ia_runnable_isa(size_t index);

/* ---- context: threads and memory ------------------------------------------------------------------------------ */

typedef struct ia_context ia_context;

/* Memory for tensors, caches and workspaces. `allocate` returns `bytes` bytes at a multiple of `alignment` (64), or
 * NULL; `release` gets what it returned. Both may be called from any thread that calls the library, and until the last
 * handle made with the context is destroyed. Small objects (names, handles) use operator new. */
typedef struct ia_allocator {
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* memory, size_t bytes);
  void* user;
} ia_allocator;

typedef struct ia_context_options {
  size_t struct_size;
  int threads;            /* 0: one per CPU of `cpus`, or per performance core; at most 1024 */
  const int* cpus;        /* NULL: performance cores on big.LITTLE, else no pinning */
  size_t cpu_count;       /* of `cpus` */
  ia_allocator allocator; /* both functions, or neither: operator new */
} ia_context_options;

/* options may be NULL. Starts threads - 1 threads. */
IA_API ia_status ia_context_create(const ia_context_options* options, ia_context** context);
IA_API void ia_context_destroy(ia_context** context);
IA_API ia_status ia_context_threads(const ia_context* context, int* threads);

/* Progress and cancelling of long calls; either function may be NULL. Called from the calling thread, now and then.
 * They must not throw or call longjmp, and must not use the handles of the call. After cancelling, everything is as
 * before the call. */
typedef struct ia_callbacks {
  void (*progress)(void* user, uint64_t done, uint64_t total);
  int (*cancel)(void* user); /* nonzero: stop */
  void* user;
} ia_callbacks;

/* ---- attention on your own tensors ---------------------------------------------------------------------------- */

typedef int32_t ia_dtype;
enum { IA_F32 = 0, IA_F16 = 1, IA_BF16 = 2, IA_S8 = 3 };

/* [heads][length][head_dim]. `strides` in bytes, each may be any value, 0 and negative included; all three 0:
 * contiguous. IA_S8: x = element * scale[head][token], `scale_strides` in bytes; {0, 0}: one scale for the tensor. */
typedef struct ia_tensor {
  const void* data;
  ia_dtype dtype;
  size_t heads, length, head_dim;
  ptrdiff_t strides[3];
  const float* scale;
  ptrdiff_t scale_strides[2];
} ia_tensor;

/* f32 [heads][length][head_dim], head_dim contiguous; strides of head and token in bytes, multiples of 4; {0, 0}:
 * contiguous. The vectors must not overlap. */
typedef struct ia_output {
  float* data;
  ptrdiff_t strides[2];
} ia_output;

typedef struct ia_attention_options {
  size_t struct_size;
  int causal;    /* nonzero: query i sees keys up to kv_len - q_len + i */
  size_t window; /* causal only: at most so many of the last keys; 0: all */
  size_t prefix; /* causal only: keys below are seen by every query; not with window */
  float scale;   /* of q.k; 0: 1 / sqrt(head_dim) */
} ia_attention_options;

/* out[h][i] = softmax(scale * q[h][i] . k)  v, computed in integers (docs/numerics.md sections 2-5).
 * q [n_heads][q_len][d], k and v [n_kv_heads][kv_len][d]; n_heads a multiple of n_kv_heads (grouped queries); d a
 * multiple of 16, at most 1024. NaN or Inf in a tensor: IA_INVALID_ARGUMENT. The bits of the result depend neither on
 * threads nor on the instruction set. options may be NULL. */
IA_API ia_status ia_attention(ia_context* context, const ia_attention_options* options, const ia_tensor* q,
                              const ia_tensor* k, const ia_tensor* v, const ia_output* out);

/* ---- KV cache: int8, paged, append-only ----------------------------------------------------------------------- */

typedef struct ia_cache ia_cache;

/* Takes memory as it fills, 256 tokens at a time. Sizes from 1; head_dim a multiple of 16, at most 1024. */
IA_API ia_status ia_cache_create(ia_context* context, size_t layers, size_t kv_heads, size_t head_dim,
                                 size_t max_length, ia_cache** cache);
IA_API void ia_cache_destroy(ia_cache** cache);
IA_API ia_status ia_cache_length(const ia_cache* cache, size_t* tokens);
IA_API ia_status ia_cache_bytes(const ia_cache* cache, size_t* bytes);

/* Appends k and v [kv_heads][n][head_dim] to one layer. ia_cache_length grows when every layer has the rows: append to
 * all layers, in any order, before the next step. n > 0. IA_CONTEXT_OVERFLOW beyond max_length. */
IA_API ia_status ia_cache_append(ia_cache* cache, size_t layer, const ia_tensor* k, const ia_tensor* v);
/* ia_attention of q [n_heads][q_len][d] with all rows appended to a layer so far. */
IA_API ia_status ia_cache_attention(ia_cache* cache, size_t layer, const ia_attention_options* options,
                                    const ia_tensor* q, const ia_output* out);
/* Forgets all but the first `tokens` tokens, and rows that not every layer has. */
IA_API ia_status ia_cache_truncate(ia_cache* cache, size_t tokens);
/* A second cache with the same content; full blocks are shared until one of the two writes to them. */
IA_API ia_status ia_cache_fork(const ia_cache* cache, ia_cache** fork);

/* ---- quantised linears ---------------------------------------------------------------------------------------- */

typedef int32_t ia_weight_format;
enum {
  IA_W4G32 = 0,  /* w = scale * (q - 8), q 0..15 */
  IA_W4G32A = 1, /* w = scale * q + min */
  IA_W8G32 = 2   /* w = scale * q, q int8 */
};

typedef struct ia_linear ia_linear;

/* Per group of `group` values (a multiple of 8): scale = absmax / 127, q = round to nearest even (x / scale).
 * x f32 [groups * group], q s8 likewise, scale f32 [groups]. NaN or Inf: IA_INVALID_ARGUMENT. */
IA_API ia_status ia_quantize(size_t groups, size_t group, const float* x, int8_t* q, float* scale);

/* Quantises w f32 [out_features][in_features] (a search for the best scales, docs/quantizer.md) and packs it.
 * in_features a multiple of 32. importance f32 [in_features] >= 0, or NULL. */
IA_API ia_status ia_linear_create(ia_context* context, ia_weight_format format, size_t out_features, size_t in_features,
                                  const float* w, const float* importance, ia_linear** linear);
/* Packs weights that are quantised already, groups of 32 along in_features. q: w4 [out][in/32][16], byte j holds
 * element j low and j + 16 high; w8 int8 [out][in]. scale, min: f16 bits [out][in/32]; min for IA_W4G32A only. */
IA_API ia_status ia_linear_pack(ia_context* context, ia_weight_format format, size_t out_features, size_t in_features,
                                const void* q, const uint16_t* scale, const uint16_t* min, ia_linear** linear);
IA_API void ia_linear_destroy(ia_linear** linear);
IA_API ia_status ia_linear_bytes(const ia_linear* linear, size_t* bytes);
/* y [rows][out_features] = x [rows][in_features] W^T; f32, contiguous; x is quantised to int8 in groups of 32. */
IA_API ia_status ia_linear_run(const ia_linear* linear, size_t rows, const float* x, float* y);

/* ---- models: .iatt files written by `intattention pack` -------------------------------------------------------- */

typedef struct ia_model ia_model;

typedef struct ia_model_options {
  size_t struct_size;
  size_t context;         /* tokens a cache may hold; 0: the model's own */
  int verify;             /* nonzero: compare the checksums of all tensors, which reads the whole file */
  ia_callbacks callbacks; /* while verifying; progress in bytes */
} ia_model_options;

typedef struct ia_model_info {
  size_t struct_size;
  size_t vocab_size;  /* logits per row */
  size_t token_count; /* ids below are tokens; sample from these */
  size_t context, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
  size_t weight_bytes;
} ia_model_info;

/* Maps the file; pages are read when they are used, and shared between processes. The file must not be shortened
 * while the model lives. options may be NULL. */
IA_API ia_status ia_model_load(ia_context* context, const char* path, const ia_model_options* options,
                               ia_model** model);
IA_API void ia_model_destroy(ia_model** model);
/* Set info->struct_size first. */
IA_API ia_status ia_model_get_info(const ia_model* model, ia_model_info* info);
/* Whether a token ends a turn. */
IA_API ia_status ia_model_is_end(const ia_model* model, int32_t token, int* is_end);
/* A text that the file carries: "tokenizer.json", "chat_template.jinja", "config.json", ... UTF-8, lives as long as
 * the model, no zero at its end is promised. NULL and 0 if the file has no such text. */
IA_API ia_status ia_model_text(const ia_model* model, const char* name, const char** text, size_t* bytes);
/* An empty cache of the model's shape for its context. */
IA_API ia_status ia_model_new_cache(const ia_model* model, ia_cache** cache);

typedef int32_t ia_logits;
enum { IA_LOGITS_NONE = 0, IA_LOGITS_LAST = 1, IA_LOGITS_ALL = 2 };

/* Runs `count` token ids at the end of the cache, which was made with the same context, and appends them. logits: f32
 * [rows][vocab_size], rows 0, 1 or count (NULL for none); logits_size: floats there is room for. How a text is cut into
 * calls does not change the bits. callbacks may be NULL; with them, progress (in tokens) and cancel come every 64
 * tokens. On any error the cache is as before. Ids outside the vocabulary: IA_INVALID_ARGUMENT. */
IA_API ia_status ia_forward(const ia_model* model, ia_cache* cache, const int32_t* ids, size_t count, ia_logits which,
                            float* logits, size_t logits_size, const ia_callbacks* callbacks);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

typedef struct ia_sampler ia_sampler;

/* Applied in the order repetition_penalty, temperature, top_k, top_p, min_p. */
typedef struct ia_sampling {
  size_t struct_size;
  double temperature;        /* 0: the most likely token, the lowest id on ties */
  double top_p;              /* 0 or 1: off */
  double min_p;              /* 0: off */
  double repetition_penalty; /* 0 or 1: off; else 1e-6 to 1e6 */
  uint64_t top_k;            /* 0: off */
  uint64_t seed;             /* the same seed and logits give the same tokens, here and in Python */
} ia_sampling;

/* options may be NULL: greedy. */
IA_API ia_status ia_sampler_create(const ia_sampling* options, ia_sampler** sampler);
IA_API void ia_sampler_destroy(ia_sampler** sampler);
/* Counts tokens (of the prompt) for the repetition penalty. */
IA_API ia_status ia_sampler_see(ia_sampler* sampler, const int32_t* ids, size_t count);
/* The next token from f32 logits [count]: the first ia_model_info.token_count of a row. Counts as seen. */
IA_API ia_status ia_sampler_choose(ia_sampler* sampler, const float* logits, size_t count, int32_t* token);

#ifdef __cplusplus
}
#endif

#endif
