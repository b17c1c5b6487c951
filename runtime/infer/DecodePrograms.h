// The programs `prefill_T` and `decode_B` of an artifact that was compiled with
// --mode infer, over pages that the caller hands out.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/infer/PagedModel.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace tessera {

class DecodePrograms final : public PagedModel {
public:
  /// Proves that the session's programs have the inputs, outputs and caches
  /// that decoding needs. The session must outlive this, and nobody else writes
  /// inputs of these programs; whoever opened it has filled its weights before
  /// the first token is read.
  static StatusOr<std::unique_ptr<DecodePrograms>>
  create(hal::Session &session);

  const DecoderShape &shape() const override { return sizes; }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &wanted) override;
  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens, const Wanted &wanted) override;
  std::span<const float> logits(int64_t row) const override {
    return std::span(scores).subspan(row * sizes.vocab, sizes.vocab);
  }
  int32_t token(int64_t row) const override { return chosen[size_t(row)]; }

private:
  explicit DecodePrograms(hal::Session &session) : session(session) {}
  Status readShape();
  Status readCaches();
  Status checkPorts(const std::string &program, int64_t batch, int64_t tokens);
  Status checkText(const CachedText &text, int64_t added) const;
  Status checkTokens(std::span<const int32_t> tokens) const;
  int32_t slotOf(const CachedText &text, int64_t position) const;
  /// Where the sequences stand, each of which has `added` more tokens; those
  /// behind the last one, up to `bucket`, are not there.
  Status writeSlots(const std::string &program,
                    std::span<const CachedText> sequences, int64_t bucket,
                    int64_t added);
  /// An input, unless it holds the values already.
  template <typename T>
  Status write(const std::string &program, std::string_view name,
               std::span<const T> values) {
    return writeBytes(program, name, std::as_bytes(values));
  }
  Status writeBytes(const std::string &program, std::string_view name,
                    std::span<const std::byte> bytes);
  Status checkSamplings(std::span<const TokenSampling> samplings,
                        int64_t rows) const;
  /// What is to be chosen in each of `bucket` rows: anything where nothing is
  /// requested.
  Status writeSamplings(const std::string &program,
                        std::span<const TokenSampling> samplings,
                        int64_t bucket);
  Status runFor(const std::string &program, int64_t bucket,
                const Wanted &wanted);

  hal::Session &session;
  DecoderShape sizes;
  int64_t tableColumns = 0, allowedWords = 0;
  std::string prefillProgram;
  /// What programs' inputs hold, by their names.
  std::map<std::string,
           std::map<std::string, std::vector<std::byte>, std::less<>>>
      written;
  std::vector<float> scores; ///< [sequences, vocab]
  std::vector<int32_t> ids, slots, table, starts, lengths;
  /// A row of each: as graph.sample has them, and its result.
  std::vector<int32_t> allowed, changed, limits, chosen;
  std::vector<float> changes, options;
};

} // namespace tessera
