// The compiled model of a PagedModel: the programs `prefill_T` and `decode_B`
// of an artifact that was compiled with --mode infer.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/infer/DecoderPorts.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace tessera {

class DecodePrograms final : public PagedModel {
public:
  /// Checks that the session's programs have the inputs, outputs and KV caches
  /// that decoding needs. The session must outlive this, and nothing else may
  /// write inputs of these programs. The caller fills the weights before the
  /// first token is read.
  static StatusOr<std::unique_ptr<DecodePrograms>>
  create(hal::Session &session);

  const DecoderShape &shape() const override { return sizes; }
  Status checkPrefill(const CachedText &text, std::span<const int32_t> tokens,
                      const Wanted &wanted) const override;
  Status checkDecode(std::span<const CachedText> sequences,
                     std::span<const int32_t> tokens,
                     const Wanted &wanted) const override;
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &wanted) override;
  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens, const Wanted &wanted) override;
  std::span<const float> logits(int64_t row) const override {
    return std::span(scores).subspan(rows[size_t(row)] * sizes.vocab,
                                     sizes.vocab);
  }
  std::optional<float> logSum(int64_t row) const override {
    if (logSums.empty())
      return std::nullopt;
    return logSums[rows[size_t(row)]];
  }
  int32_t token(int64_t row) const override {
    return chosen[rows[size_t(row)]];
  }

private:
  DecodePrograms(hal::Session &session, DecoderPorts ports);
  Status checkText(const CachedText &text, int64_t added) const;
  Status checkState(const CachedText &text) const;
  Status checkStates(std::span<const CachedText> sequences) const;
  /// Notes that the sequences have `added` more tokens each.
  void countStates(std::span<const CachedText> sequences, int64_t added);
  Status checkTokens(std::span<const int32_t> tokens) const;
  /// Sorts the rows of the next run by adapter, as its programs require, and
  /// counts each slot's rows, of `added` tokens each.
  void orderRows(std::span<const CachedText> sequences, int64_t added);
  int32_t slotOf(const CachedText &text, int64_t position) const;
  /// Writes the slots and the block tables of the sequences, each of which has
  /// `added` more tokens. Rows after the last sequence, up to `bucket`, are
  /// padding.
  Status writeSlots(const std::string &program,
                    std::span<const CachedText> sequences, int64_t bucket,
                    int64_t added);
  /// Writes an input unless it holds the values already.
  template <typename T>
  Status write(const std::string &program, std::string_view name,
               std::span<const T> values) {
    return writeBytes(program, name, std::as_bytes(values));
  }
  Status writeBytes(const std::string &program, std::string_view name,
                    std::span<const std::byte> bytes);
  Status checkSamplings(std::span<const TokenSampling> samplings,
                        int64_t rows) const;
  /// Writes what to sample in each of `bucket` rows; rows without a request may
  /// sample any token.
  Status writeSamplings(const std::string &program,
                        std::span<const TokenSampling> samplings,
                        int64_t bucket);
  Status runFor(const std::string &program, int64_t bucket,
                const Wanted &wanted);

  hal::Session &session;
  const DecoderPorts ports;
  const DecoderShape &sizes = ports.shape;
  /// The last values written to each input, by program and name.
  std::map<std::string,
           std::map<std::string, std::vector<std::byte>, std::less<>>>
      written;
  std::vector<float> scores;  ///< [sequences, vocab]
  std::vector<float> logSums; ///< [sequences]; empty: no such output
  std::vector<int32_t> ids, slots, table, starts, lengths, states;
  std::vector<int64_t> stateLengths; ///< tokens of the state in each slot
  /// The sequence of each row of the last run, and the row of each sequence.
  std::vector<size_t> order, rows;
  std::vector<int32_t> adapterOffsets; ///< [sizes.adapters + 1]
  /// One row per sequence: the inputs of graph.sample, and its result.
  std::vector<int32_t> allowed, changed, limits, chosen;
  std::vector<float> changes, options;
};

} // namespace tessera
