// cuBLASLt of the fake GPUs: LibraryApi.h, in the same shared object as the
// driver, since it works in the driver's streams. Computes from the
// descriptors, on matrices with columns without gaps, as its documentation has
// it. Strict about handles, shapes, types, leading dimensions, alignment as it
// was promised to the heuristic, workspace, and code that is loaded for the
// first time while a stream captures.
//
// Settings: TESSERA_FAKE_CUBLASLT_ + WAYS (of what the heuristic finds, 4; the
// third is always one that does not work), MICROSECONDS (A:B:C:D, of each way,
// on the clock of TESSERA_FAKE_CUDA_MICROSECONDS), WRONG (the way that adds
// TF32's error, from 1 on). TESSERA_FAKE_CUDA_FAIL fails its functions too.
#include "runtime/support/Floats.h"
#include "test/runtime/hal/cuda/FakeGpu.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tessera::test {

#define TESSERA_FAKE_DECLARE(member, symbol, parameters)                       \
  extern "C" LtStatus symbol parameters;
TESSERA_CUBLASLT_FUNCTIONS(TESSERA_FAKE_DECLARE)
#undef TESSERA_FAKE_DECLARE

namespace {

constexpr LtStatus kLtNotSupported = 15;
constexpr std::uint64_t kMagic = 0x6c745f616c676f00;

/// What an algorithm's words mean here.
struct Algorithm {
  std::uint64_t magic, way, workspaceBytes;
  LtOperation operation;
  std::uint32_t alignA, alignB, alignC, alignD;
  std::uint64_t unused[2];
};
static_assert(sizeof(Algorithm) == sizeof(LtAlgorithm));

std::uint64_t elementBytes(int type) { return type == kLtFloat ? 4 : 2; }

float load(const std::byte *from, int type, std::uint64_t i) {
  if (type == kLtFloat) {
    float value = 0;
    std::memcpy(&value, from + 4 * i, 4);
    return value;
  }
  std::uint16_t value = 0;
  std::memcpy(&value, from + 2 * i, 2);
  return bf16ToFloat(value);
}

void store(std::byte *to, int type, std::uint64_t i, float value) {
  const std::uint16_t rounded = floatToBf16(value);
  if (type == kLtFloat)
    std::memcpy(to + 4 * i, &value, 4);
  else
    std::memcpy(to + 2 * i, &rounded, 2);
}

/// Elements from a matrix' first to its last one, all batches.
std::uint64_t extent(const LtLayoutTag &layout) {
  return (layout.columns - 1) * layout.leading + layout.rows +
         (layout.batches - 1) * layout.stride;
}

/// One call, with everything that it needs later.
struct Call {
  LtOperationTag operation;
  LtLayoutTag a, b, d;
  const std::byte *aData, *bData;
  std::byte *dData;
  float alpha, beta;
  bool isWrong;

  std::uint64_t depth() const {
    return operation.transposeA ? a.rows : a.columns;
  }
  bool fits() const {
    const std::uint64_t aRows = operation.transposeA ? a.columns : a.rows;
    const std::uint64_t bRows = operation.transposeB ? b.columns : b.rows;
    const std::uint64_t bColumns = operation.transposeB ? b.rows : b.columns;
    return aRows == d.rows && bRows == depth() && bColumns == d.columns &&
           a.batches == d.batches && b.batches == d.batches;
  }
  bool hasTypes() const {
    return a.type == b.type && (a.type == kLtBfloat16 || d.type == kLtFloat);
  }
  float term(float value) const { // as TF32 keeps it
    return isWrong ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) &
                                          ~0x1fffu)
                   : value;
  }
  void run() const;
};

void Call::run() const {
  for (std::uint64_t batch = 0; batch < d.batches; ++batch)
    for (std::uint64_t j = 0; j < d.columns; ++j)
      for (std::uint64_t i = 0; i < d.rows; ++i) {
        float sum = 0;
        for (std::uint64_t l = 0; l < depth(); ++l) {
          const std::uint64_t inA =
              operation.transposeA ? l + i * a.leading : i + l * a.leading;
          const std::uint64_t inB =
              operation.transposeB ? j + l * b.leading : l + j * b.leading;
          sum += term(load(aData, a.type, batch * a.stride + inA)) *
                 term(load(bData, b.type, batch * b.stride + inB));
        }
        const std::uint64_t at = batch * d.stride + j * d.leading + i;
        const float before = beta == 0 ? 0 : beta * load(dData, d.type, at);
        store(dData, d.type, at, alpha * sum + before);
      }
}

/// The number in place `index` of A:B:C:D.
std::uint64_t listed(const char *variable, std::uint64_t index) {
  const char *text = std::getenv(variable);
  for (; text && index > 0; --index) {
    text = std::strchr(text, ':');
    text = text ? text + 1 : nullptr;
  }
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

/// A value of the size that the attribute has.
template <typename T> bool take(T &to, const void *value, std::size_t bytes) {
  if (!value || bytes != sizeof(T))
    return false;
  std::memcpy(&to, value, bytes);
  return true;
}

} // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return 130100; }
const char *cublasLtGetStatusString(LtStatus status) {
  return status == kLtNotSupported ? "not supported" : "fake status";
}

LtStatus cublasLtCreate(LtHandle *handle) {
  FAKE_ENTER(cublasLtCreate, kContext | kNoCapture);
  *handle = *all.ltHandles.insert(new LtHandleTag).first;
  return 0;
}

LtStatus cublasLtDestroy(LtHandle handle) {
  FAKE_ENTER(cublasLtDestroy, kFree | kNoCapture);
  return all.destroy(all.ltHandles, handle, "cublasLtDestroy of none");
}

LtStatus cublasLtMatmulDescCreate(LtOperation *operation, int compute,
                                  int scaleType) {
  FAKE_ENTER(cublasLtMatmulDescCreate, kNothing);
  FAKE_REQUIRE(compute == kLtComputeFloat && scaleType == kLtFloat,
               "a product in another type", kLtInvalidValue);
  *operation = *all.ltOperations.insert(new LtOperationTag).first;
  return 0;
}

LtStatus cublasLtMatmulDescSetAttribute(LtOperation operation, int attribute,
                                        const void *value, std::size_t bytes) {
  FAKE_ENTER(cublasLtMatmulDescSetAttribute, kNothing);
  std::int32_t number = 0;
  FAKE_REQUIRE(all.ltOperations.contains(operation) &&
                   take(number, value, bytes) && (number == 0 || number == 1) &&
                   (attribute == 3 || attribute == 4),
               "a wrong attribute of a product", kLtInvalidValue);
  (attribute == 3 ? operation->transposeA : operation->transposeB) = number;
  return 0;
}

LtStatus cublasLtMatmulDescDestroy(LtOperation operation) {
  FAKE_ENTER(cublasLtMatmulDescDestroy, kFree);
  all.destroy(all.ltOperations, operation, "the end of no product");
  return 0;
}

LtStatus cublasLtMatrixLayoutCreate(LtLayout *layout, int type,
                                    std::uint64_t rows, std::uint64_t columns,
                                    std::int64_t leading) {
  FAKE_ENTER(cublasLtMatrixLayoutCreate, kNothing);
  FAKE_REQUIRE((type == kLtFloat || type == kLtBfloat16) && rows > 0 &&
                   columns > 0 && leading >= std::int64_t(rows),
               "a wrong layout of a matrix", kLtInvalidValue);
  *layout =
      *all.ltLayouts
           .insert(new LtLayoutTag{type, rows, columns, std::uint64_t(leading)})
           .first;
  return 0;
}

LtStatus cublasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute,
                                          const void *value,
                                          std::size_t bytes) {
  FAKE_ENTER(cublasLtMatrixLayoutSetAttribute, kNothing);
  std::int32_t count = 0;
  std::int64_t stride = 0;
  FAKE_REQUIRE(all.ltLayouts.contains(layout), "an attribute of no layout",
               kLtInvalidValue);
  if (attribute == 5 && take(count, value, bytes) && count > 0)
    layout->batches = std::uint64_t(count);
  else if (attribute == 6 && take(stride, value, bytes) && stride >= 0)
    layout->stride = std::uint64_t(stride);
  else
    return all.wrong("a wrong attribute of a layout", kLtInvalidValue);
  return 0;
}

LtStatus cublasLtMatrixLayoutDestroy(LtLayout layout) {
  FAKE_ENTER(cublasLtMatrixLayoutDestroy, kFree);
  all.destroy(all.ltLayouts, layout, "the end of no layout");
  return 0;
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference *preference) {
  FAKE_ENTER(cublasLtMatmulPreferenceCreate, kNothing);
  *preference = *all.ltPreferences.insert(new LtPreferenceTag).first;
  return 0;
}

LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference,
                                              int attribute, const void *value,
                                              std::size_t bytes) {
  FAKE_ENTER(cublasLtMatmulPreferenceSetAttribute, kNothing);
  FAKE_REQUIRE(all.ltPreferences.contains(preference),
               "an attribute of no preference", kLtInvalidValue);
  std::uint32_t number = 0;
  if (attribute == 1 && take(preference->workspaceBytes, value, bytes))
    return 0;
  FAKE_REQUIRE(take(number, value, bytes), "a wrong size of a preference",
               kLtInvalidValue);
  if (attribute == 3) {
    FAKE_REQUIRE(number == 2, "sums in the type of the result",
                 kLtInvalidValue);
    return 0;
  }
  FAKE_REQUIRE(attribute >= 5 && attribute <= 8 && std::has_single_bit(number),
               "a wrong preference", kLtInvalidValue);
  preference->alignments[attribute - 5] = number;
  return 0;
}

LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  FAKE_ENTER(cublasLtMatmulPreferenceDestroy, kFree);
  all.destroy(all.ltPreferences, preference, "the end of no preference");
  return 0;
}

LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtOperation operation,
                                        LtLayout a, LtLayout b, LtLayout c,
                                        LtLayout d, LtPreference preference,
                                        int wanted, LtHeuristic *results,
                                        int *count) {
  FAKE_ENTER(cublasLtMatmulAlgoGetHeuristic, kContext);
  FAKE_REQUIRE(all.ltHandles.contains(handle) &&
                   all.ltOperations.contains(operation) &&
                   all.ltLayouts.contains(a) && all.ltLayouts.contains(b) &&
                   c == d && all.ltLayouts.contains(d) &&
                   all.ltPreferences.contains(preference) && wanted > 0,
               "a heuristic for what is no product", kLtInvalidValue);
  const Call call = {*operation, *a,      *b, *d, nullptr,
                     nullptr,    nullptr, 1,  0,  false};
  FAKE_REQUIRE(call.fits(), "matrices that do not fit", kLtInvalidValue);
  if (!call.hasTypes())
    return kLtNotSupported;
  *count = static_cast<int>(std::min<std::uint64_t>(
      std::uint64_t(wanted), setting("TESSERA_FAKE_CUBLASLT_WAYS", 4)));
  for (int i = 0; i < *count; ++i) {
    const auto way = static_cast<std::uint64_t>(i);
    const auto &aligned = preference->alignments;
    const std::uint64_t needed =
        std::min(preference->workspaceBytes, way << 20);
    const Algorithm algorithm = {kMagic,     way,        needed,
                                 operation,  aligned[0], aligned[1],
                                 aligned[2], aligned[3], {}};
    results[i] = {std::bit_cast<LtAlgorithm>(algorithm),
                  needed,
                  way == 2 ? kLtNotSupported : 0,
                  1,
                  {}};
  }
  return 0;
}

LtStatus cublasLtMatmul(LtHandle handle, LtOperation operation,
                        const void *alpha, const void *a, LtLayout aLayout,
                        const void *b, LtLayout bLayout, const void *beta,
                        const void *c, LtLayout cLayout, void *d,
                        LtLayout dLayout, const LtAlgorithm *algorithm,
                        void *workspace, std::size_t workspaceBytes,
                        Stream stream) {
  FAKE_ENTER(cublasLtMatmul, kContext);
  FAKE_REQUIRE(
      all.ltHandles.contains(handle) && all.ltOperations.contains(operation) &&
          all.ltLayouts.contains(aLayout) && all.ltLayouts.contains(bLayout) &&
          all.ltLayouts.contains(dLayout) && c == d && cLayout == dLayout &&
          all.streams.contains(stream) && algorithm,
      "a product without its parts", kLtInvalidValue);
  const auto chosen = std::bit_cast<Algorithm>(*algorithm);
  FAKE_REQUIRE(chosen.magic == kMagic && chosen.operation == operation &&
                   chosen.way != 2,
               "a product by an algorithm for another one", kLtInvalidValue);
  Call call = {*operation,
               *aLayout,
               *bLayout,
               *dLayout,
               static_cast<const std::byte *>(a),
               static_cast<const std::byte *>(b),
               static_cast<std::byte *>(d),
               *static_cast<const float *>(alpha),
               *static_cast<const float *>(beta),
               setting("TESSERA_FAKE_CUBLASLT_WRONG", 0) == chosen.way + 1};
  FAKE_REQUIRE(call.fits() && call.hasTypes(), "matrices that do not fit",
               kLtInvalidValue);
  const LtLayoutTag &result = *dLayout;
  FAKE_REQUIRE(result.batches == 1 ||
                   result.stride >=
                       result.leading * (result.columns - 1) + result.rows,
               "results that lie on each other", kLtInvalidValue);
  const auto number = [](const void *pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  };
  FAKE_REQUIRE(
      number(a) % chosen.alignA == 0 && number(b) % chosen.alignB == 0 &&
          number(c) % chosen.alignC == 0 && number(d) % chosen.alignD == 0,
      "an operand less aligned than was promised", kLtInvalidValue);
  FAKE_REQUIRE(workspaceBytes >= chosen.workspaceBytes &&
                   number(workspace) % 256 == 0 &&
                   all.memory.holds(number(workspace), workspaceBytes),
               "a product without its workspace", kLtInvalidValue);
  const auto holds = [&all, number](const void *data,
                                    const LtLayoutTag &layout) {
    return all.memory.holds(number(data),
                            extent(layout) * elementBytes(layout.type));
  };
  FAKE_REQUIRE(holds(a, *aLayout) && holds(b, *bLayout) && holds(d, *dLayout),
               "a product leaves its memory", kLtInvalidValue);
  FAKE_REQUIRE(!stream->capturing || operation->ran.contains(chosen.way),
               "a product is loaded while a stream captures", kLtInvalidValue);
  operation->ran.insert(chosen.way);
  const std::uint64_t time =
      listed("TESSERA_FAKE_CUBLASLT_MICROSECONDS", chosen.way);
  return all.submit(stream, [&all, call, holds, time] {
    FAKE_REQUIRE(holds(call.aData, call.a) && holds(call.bData, call.b) &&
                     holds(call.dData, call.d),
                 "a product after a free", kIllegalAddress);
    call.run();
    all.microseconds += time;
    return Result(kSuccess);
  });
}

} // extern "C"

} // namespace tessera::test
