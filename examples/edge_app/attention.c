/* Attention alone, in plain C: 8 query heads share 2 kv heads, 100 tokens, causal. Compares with a float loop and
 * prints the relative error (L1). */
#include <intattention.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 8, kKvHeads = 2, kLength = 100, kDim = 64 };

static float q[kHeads][kLength][kDim], k[kKvHeads][kLength][kDim], v[kKvHeads][kLength][kDim];
static float out[kHeads][kLength][kDim];

static void fill(float* x, size_t count) {
  static unsigned state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
  }
}

/* Sum of |expected - out| and of |expected| of one query. */
static void compare(int h, int i, double* error, double* size) {
  const int kv = h / (kHeads / kKvHeads);
  double p[kLength], sum = 0, expected;
  for (int j = 0; j <= i; ++j) {
    double logit = 0;
    for (int c = 0; c < kDim; ++c) logit += (double)q[h][i][c] * k[kv][j][c];
    sum += p[j] = exp(logit / sqrt((double)kDim));
  }
  for (int c = 0; c < kDim; ++c) {
    expected = 0;
    for (int j = 0; j <= i; ++j) expected += p[j] / sum * v[kv][j][c];
    *error += fabs(expected - out[h][i][c]);
    *size += fabs(expected);
  }
}

static int fail(void) {
  fprintf(stderr, "attention: %s\n", ia_last_error());
  return EXIT_FAILURE;
}

int main(void) {
  fill(&q[0][0][0], sizeof q / sizeof(float));
  fill(&k[0][0][0], sizeof k / sizeof(float));
  fill(&v[0][0][0], sizeof v / sizeof(float));

  ia_context* context = NULL;
  if (ia_context_create(NULL, &context) != IA_OK) return fail();
  const ia_tensor tq = {q, IA_F32, kHeads, kLength, kDim, {0}, NULL, {0}};
  const ia_tensor tk = {k, IA_F32, kKvHeads, kLength, kDim, {0}, NULL, {0}};
  const ia_tensor tv = {v, IA_F32, kKvHeads, kLength, kDim, {0}, NULL, {0}};
  const ia_output to = {&out[0][0][0], {0}};
  ia_attention_options options = {0};
  options.struct_size = sizeof options;
  options.causal = 1;
  const char* isa = NULL;
  if (ia_active_isa(&isa) != IA_OK || ia_attention(context, &options, &tq, &tk, &tv, &to) != IA_OK) return fail();
  ia_context_destroy(&context);

  double error = 0, size = 0;
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kLength; ++i) compare(h, i, &error, &size);
  printf("%s: relative error %.4f\n", isa, error / size);
  return error / size < 0.05 ? EXIT_SUCCESS : EXIT_FAILURE;
}
