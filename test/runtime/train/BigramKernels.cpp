// Kernels of the smallest model that learns from text: a table of bigram logits
// under softmax cross-entropy and SGD. Built as a shared object without
// dependencies, they stand in for compiled code, so that the whole runtime from
// command line to generated text is tested without a compiler.
#include <cstdint>

namespace {

constexpr int kVocab = 257; // the bytes and <|endoftext|>

/// exp for x ≤ 0, by halving the argument until a cubic is good to 1e-6.
float expOf(float x) {
  if (x < -80)
    return 0;
  float y = x / 1024;
  float value = 1 + y * (1 + y * (0.5f + y / 6));
  for (int i = 0; i < 10; ++i)
    value *= value;
  return value;
}

/// ln for x ≥ 1, by Newton's steps on exp.
float lnOf(float x) {
  float y = 0;
  for (float rest = x; rest > 2; rest /= 2)
    y += 0.69314718f;
  for (int i = 0; i < 4; ++i)
    y += x * expOf(-y) - 1;
  return y;
}

/// Softmax of one row: returns the loss of `target`, fills `probability`.
float softmax(const float *row, int target, float *probability) {
  float best = row[0], sum = 0;
  for (int v = 1; v < kVocab; ++v)
    best = row[v] > best ? row[v] : best;
  for (int v = 0; v < kVocab; ++v)
    sum += probability[v] = expOf(row[v] - best);
  for (int v = 0; v < kVocab; ++v)
    probability[v] /= sum;
  return best - row[target] + lnOf(sum);
}

} // namespace

extern "C" {

/// seed, table, step
void bigram_init(void *const *buffers, const int64_t *, int64_t, int64_t,
                 void *) {
  auto seed = *static_cast<const int64_t *>(buffers[0]);
  auto *table = static_cast<float *>(buffers[1]);
  auto state = uint32_t(seed) * 2654435761u + 1;
  for (int i = 0; i < kVocab * kVocab; ++i) {
    state = state * 1664525u + 1013904223u;
    table[i] = float(state >> 8) * 0x1p-24f * 0.02f;
  }
  *static_cast<int64_t *>(buffers[2]) = 0;
}

/// tokens, targets, hyper, table, step, loss, grad_norm, lr, count;
/// sizes: the number of tokens; scratch: the table's gradient and a row
void bigram_train(void *const *buffers, const int64_t *sizes, int64_t, int64_t,
                  void *scratch) {
  auto *tokens = static_cast<const int32_t *>(buffers[0]);
  auto *targets = static_cast<const int32_t *>(buffers[1]);
  auto *hyper = static_cast<const float *>(buffers[2]);
  auto *table = static_cast<float *>(buffers[3]);
  auto *gradient = static_cast<float *>(scratch);
  float *probability = gradient + kVocab * kVocab;
  for (int i = 0; i < kVocab * kVocab; ++i)
    gradient[i] = 0;
  float loss = 0, square = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < sizes[0]; ++i) {
    if (targets[i] == -100)
      continue;
    loss += softmax(table + tokens[i] * kVocab, targets[i], probability);
    for (int v = 0; v < kVocab; ++v)
      gradient[tokens[i] * kVocab + v] +=
          probability[v] - (v == targets[i] ? 1.0f : 0.0f);
    ++count;
  }
  for (int i = 0; i < kVocab * kVocab; ++i) {
    float mean = gradient[i] / float(count);
    square += mean * mean;
    table[i] -= hyper[0] * mean;
  }
  ++*static_cast<int64_t *>(buffers[4]);
  *static_cast<float *>(buffers[5]) = loss / float(count);
  *static_cast<float *>(buffers[6]) = square;
  *static_cast<float *>(buffers[7]) = hyper[0];
  *static_cast<int64_t *>(buffers[8]) = count;
}

/// tokens, targets, table, loss_sum, count; sizes: the number of tokens;
/// scratch: a row
void bigram_eval(void *const *buffers, const int64_t *sizes, int64_t, int64_t,
                 void *scratch) {
  auto *tokens = static_cast<const int32_t *>(buffers[0]);
  auto *targets = static_cast<const int32_t *>(buffers[1]);
  auto *table = static_cast<const float *>(buffers[2]);
  float loss = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < sizes[0]; ++i)
    if (targets[i] != -100) {
      loss += softmax(table + tokens[i] * kVocab, targets[i],
                      static_cast<float *>(scratch));
      ++count;
    }
  *static_cast<float *>(buffers[3]) = loss;
  *static_cast<int64_t *>(buffers[4]) = count;
}

/// tokens, table, logits; a block is one position
void bigram_logits(void *const *buffers, const int64_t *, int64_t begin,
                   int64_t end, void *) {
  auto *tokens = static_cast<const int32_t *>(buffers[0]);
  auto *table = static_cast<const float *>(buffers[1]);
  auto *logits = static_cast<float *>(buffers[2]);
  for (int64_t i = begin; i < end; ++i)
    for (int v = 0; v < kVocab; ++v)
      logits[i * kVocab + v] = table[tokens[i] * kVocab + v];
}
}
