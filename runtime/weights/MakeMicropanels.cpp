#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>

namespace tessera {
namespace {

/// Words that are buffered at once: more than most micropanels have.
constexpr int64_t kBufferedWords = int64_t(1) << 20;

struct Maker {
  const QuantizedLayout &layout;
  int64_t words, scales; // of a micropanel
  const MakeMicropanel &make;
  /// Those of which this process stores a part; empty: all.
  std::vector<bool> own = {};

  /// Micropanels [first, first + count) to where they begin.
  Status run(int64_t first, int64_t count, uint32_t *toWords,
             uint16_t *toScales) const {
    return inParallel(uint32_t(count), [&](uint32_t i, unsigned thread) {
      if (!own.empty() && !own[first + i])
        return Status::success();
      const std::span micropanel(toWords + i * words, words);
      const std::span factors(toScales + i * scales, scales);
      if ((first + i + 1) * kMicropanel > layout.rows) {
        std::ranges::fill(micropanel, layout.zeroWord());
        std::ranges::fill(factors, uint16_t(0));
      }
      return make(first + i, micropanel, factors, thread);
    });
  }
};

/// The micropanels of a matrix, of which this process has a part.
StatusOr<std::vector<bool>> ownMicropanels(ModelState &model,
                                           const StateTensor &values) {
  const QuantizedLayout &layout = values.quantized->layout;
  const uint64_t bytes = layout.words() * kMicropanel * sizeof(uint32_t),
                 begin = values.quantized->firstMicropanel * bytes;
  std::vector<bool> own(layout.micropanels());
  TESSERA_RETURN_IF_ERROR(model.forEachOwn(
      values, begin, own.size() * bytes, [&](uint64_t at, uint64_t size) {
        const uint64_t first = (at - begin) / bytes,
                       last = (at - begin + size - 1) / bytes;
        std::fill(own.begin() + first, own.begin() + last + 1, true);
        return Status::success();
      }));
  return own;
}

} // namespace

Status makeMicropanels(ModelState &model, const StateTensor &values,
                       const StateTensor *scales, const MakeMicropanel &make) {
  const QuantizedLayout &layout = values.quantized->layout;
  Maker maker{layout, layout.words() * kMicropanel,
              scales ? layout.scaleRows() * kMicropanel * layout.scaleBytes() /
                           int64_t(sizeof(uint16_t))
                     : 0,
              make};
  auto words = model.stateInMemory(values);
  auto factors = scales ? model.stateInMemory(*scales) : std::span<std::byte>();
  const int64_t before = values.quantized->firstMicropanel;
  if (!words.empty() && (!scales || !factors.empty()))
    return maker.run(
        0, layout.micropanels(),
        reinterpret_cast<uint32_t *>(words.data()) + before * maker.words,
        reinterpret_cast<uint16_t *>(factors.data()) + before * maker.scales);
  auto own = ownMicropanels(model, values);
  if (!own.ok())
    return own.status();
  maker.own = own.take();
  const int64_t most = std::max<int64_t>(1, kBufferedWords / maker.words);
  std::vector<uint32_t> someWords;
  std::vector<uint16_t> someScales;
  for (int64_t first = 0; first < layout.micropanels(); first += most) {
    const int64_t count = std::min(most, layout.micropanels() - first);
    someWords.resize(count * maker.words);
    someScales.resize(count * maker.scales);
    TESSERA_RETURN_IF_ERROR(
        maker.run(first, count, someWords.data(), someScales.data()));
    TESSERA_RETURN_IF_ERROR(model.writeState(
        values, (before + first) * maker.words * sizeof(uint32_t),
        std::as_bytes(std::span(someWords))));
    if (scales)
      TESSERA_RETURN_IF_ERROR(model.writeState(
          *scales, (before + first) * maker.scales * sizeof(uint16_t),
          std::as_bytes(std::span(someScales))));
  }
  return Status::success();
}

} // namespace tessera
