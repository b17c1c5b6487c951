// Matrix products of Debian's reference BLAS, which PyTorch calls, in a
// fraction of the time: for processes that have preloaded this library. Each
// element is the same operations in the same order as in the reference's sgemm
// and dgemm, so its bits are the same; here many elements are computed at once,
// in vector registers, from operands that are copied to the order of the loop.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

// The programs that an oracle starts are the product's.
__attribute__((constructor)) static void loadInNoOther() {
  unsetenv("LD_PRELOAD");
}

namespace {

constexpr int kColumns = 6; // of a tile of C, each of one vector

// A vector of the widest kind; narrower processors take several for it.
template <typename T> struct Vector;
template <> struct Vector<float> {
  using Type = float __attribute__((vector_size(64)));
};
template <> struct Vector<double> {
  using Type = double __attribute__((vector_size(64)));
};
template <typename T> using VectorOf = typename Vector<T>::Type;
template <typename T> constexpr int kRows = sizeof(VectorOf<T>) / sizeof(T);

// Column-major, op(A) [m, k] and op(B) [k, n].
template <typename T> struct Product {
  bool transA, transB;
  int m, n, k;
  T alpha, beta;
  const T *a;
  std::ptrdiff_t lda;
  const T *b;
  std::ptrdiff_t ldb;
  T *c;
  std::ptrdiff_t ldc;

  T atB(int l, int j) const { return transB ? b[j + l * ldb] : b[l + j * ldb]; }
};

// The reference has two orders: with A as it is, C is scaled, and a term is
// (alpha * b) * a; with A transposed, terms are a * b, and their sum is scaled
// and added to beta * C.
//
// B in panels of kColumns columns, row by row.
template <typename T> std::vector<T> packedB(const Product<T> &p) {
  const std::size_t depth = p.k,
                    panels = (p.n + kColumns - 1) / std::size_t(kColumns);
  std::vector<T> packed(depth * panels * kColumns);
  for (int j = 0; j < p.n; ++j)
    for (int l = 0; l < p.k; ++l)
      packed[(j / kColumns * depth + l) * kColumns + j % kColumns] =
          p.transA ? p.atB(l, j) : p.alpha * p.atB(l, j);
  return packed;
}

// A tile of C, by columns.
template <typename T> using Tile = T[kColumns][kRows<T>];

// Adds so many terms in order to the sums of a tile. `a` has kRows, `b`
// kColumns elements for each.
template <typename T>
inline __attribute__((always_inline)) void addTerms(const T *a, const T *b,
                                                    int count, Tile<T> &sums) {
  VectorOf<T> own[kColumns];
  std::memcpy(own, sums, sizeof own);
  for (int l = 0; l < count; ++l, a += kRows<T>, b += kColumns) {
    VectorOf<T> rows;
    std::memcpy(&rows, a, sizeof rows);
    for (int column = 0; column < kColumns; ++column)
      own[column] += rows * b[column];
  }
  std::memcpy(sums, own, sizeof own);
}

#if defined(__x86_64__)
#define TESSERA_CLONES                                                         \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_CLONES
#endif

TESSERA_CLONES void addTile(const float *a, const float *b, int count,
                            Tile<float> &sums) {
  addTerms(a, b, count, sums);
}
TESSERA_CLONES void addTile(const double *a, const double *b, int count,
                            Tile<double> &sums) {
  addTerms(a, b, count, sums);
}

// Rows of A from `i` on, padded to kRows.
template <typename T> void packRows(const Product<T> &p, int i, T *packed) {
  const int rows = std::min(kRows<T>, p.m - i);
  if (!p.transA) {
    for (int l = 0; l < p.k; ++l)
      std::copy_n(p.a + i + l * p.lda, rows, packed + l * kRows<T>);
    return;
  }
  for (int row = 0; row < rows; ++row)
    for (int l = 0; l < p.k; ++l)
      packed[l * kRows<T> + row] = p.a[l + (i + row) * p.lda];
}

template <typename T>
void store(const Product<T> &p, const T *sums, int rows, T *c) {
  for (int row = 0; row < rows; ++row)
    if (!p.transA)
      c[row] = sums[row];
    else
      c[row] = p.beta == 0 ? p.alpha * sums[row]
                           : p.alpha * sums[row] + p.beta * c[row];
}

template <typename T> void multiply(const Product<T> &p) {
  const std::vector<T> terms = packedB(p);
  std::vector<T> a(std::size_t(p.k) * kRows<T>);
  for (int i = 0; i < p.m; i += kRows<T>) {
    const int rows = std::min(kRows<T>, p.m - i);
    packRows(p, i, a.data());
    for (int first = 0; first < p.n; first += kColumns) {
      const int columns = std::min(kColumns, p.n - first);
      T *c = p.c + i + first * p.ldc;
      Tile<T> sums = {};
      if (!p.transA && p.beta != 0)
        for (int column = 0; column < columns; ++column)
          for (int row = 0; row < rows; ++row)
            sums[column][row] = p.beta * c[row + column * p.ldc];
      addTile(a.data(), terms.data() + std::size_t(first) * p.k, p.k, sums);
      for (int column = 0; column < columns; ++column)
        store(p, sums[column], rows, c + column * p.ldc);
    }
  }
}

template <typename T>
void gemm(const char *transA, const char *transB, const int *m, const int *n,
          const int *k, const T *alpha, const T *a, const int *lda, const T *b,
          const int *ldb, const T *beta, T *c, const int *ldc) {
  auto isTransposed = [](char flag) { return std::toupper(flag) != 'N'; };
  if (*m == 0 || *n == 0 || ((*alpha == 0 || *k == 0) && *beta == 1))
    return;
  // Nothing is read of A and B, and all of C is scaled.
  if (*alpha == 0) {
    for (int j = 0; j < *n; ++j)
      for (int i = 0; i < *m; ++i) {
        T &at = c[i + std::ptrdiff_t(j) * *ldc];
        at = *beta == 0 ? 0 : *beta * at;
      }
    return;
  }
  multiply<T>({isTransposed(*transA), isTransposed(*transB), *m, *n, *k, *alpha,
               *beta, a, *lda, b, *ldb, c, *ldc});
}

} // namespace

extern "C" {
void sgemm_(const char *transA, const char *transB, const int *m, const int *n,
            const int *k, const float *alpha, const float *a, const int *lda,
            const float *b, const int *ldb, const float *beta, float *c,
            const int *ldc) {
  gemm<float>(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void dgemm_(const char *transA, const char *transB, const int *m, const int *n,
            const int *k, const double *alpha, const double *a, const int *lda,
            const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc) {
  gemm<double>(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
}
