// Text from a trained run or a Hugging Face directory: what `tessera generate`
// does. With programs that decode over a cache each token is computed once;
// without, every token runs the whole logits program.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/generate/PackagedModel.h"
#include "runtime/infer/Decoder.h"
#include "runtime/infer/Sampler.h"
#include "runtime/support/StartPhases.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/WeightCache.h"
#include "runtime/weights/WeightFactors.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// Where the weights of a model directory are from one start to the next.
struct WeightsCache {
  std::string folder; ///< the user's caches; empty: nowhere
  bool reads = false, writes = false;
  std::function<void(std::string_view)> note; ///< a line for people
  /// Set where the weights were read and may be kept: WeightCache::store, when
  /// there is time for it.
  std::optional<WeightCache> unkept = {};
  std::string mapped = {}; ///< set where they were kept: the file
};

struct GenerateOptions {
  /// An artifact of the run's model that was compiled with --mode infer; empty:
  /// the run's own program.
  std::string program;
  /// Is told when memory is there and when weights are; may be null.
  StartPhases *phases = nullptr;
  WeightsCache *weights = nullptr; ///< of a model directory; may be null
  /// What a model directory's weights are multiplied with; may be null, and
  /// must be where `weights` is given: kept weights are everybody's.
  const WeightFactors *factors = nullptr;
  std::string prompt; ///< special tokens in it are recognized
  uint64_t maxTokens = 64;
  SamplingOptions sampling;
  bool ignoreEnd = false; ///< go on after a token that ends a text
  /// Put around the prompt what the tokenizer's post-processor says, such as a
  /// token that begins a text: models of others were trained so, runs not.
  bool framed = false;
  /// What an empty prompt begins with where neither the frame nor the tokenizer
  /// has a token for it.
  std::optional<int32_t> startToken;
  /// What ends a text; none: the tokenizer's end-of-text token.
  std::vector<int32_t> endTokens;
  /// Of the generated text, with what ends it; null: any text. Of one use.
  std::shared_ptr<TokenGuide> guide;
  std::string device = "cpu"; ///< as hal::createDevice takes it
  unsigned threads = 0;       ///< 0: all processors
  bool profile = false;       ///< time each step of the programs
};

struct GenerateResult {
  std::string checkpoint; ///< "step-000100"; a model directory's path
  uint64_t promptTokens = 0;
  /// Of these the first, which do not fit the context and were not read.
  uint64_t droppedTokens = 0;
  uint64_t context = 0;        ///< the model's, in tokens
  std::vector<int32_t> tokens; ///< generated, the one that ends it included
  bool ended = false;          ///< by a token that ends a text
  double seconds = 0;
};

/// Receives text as it becomes certain, always whole UTF-8 characters.
using TextSink = std::function<void(std::string_view)>;

/// What tells the next token of a text.
struct TextModel {
  int64_t vocab = 0;
  /// Tokens that it sees at once, and how many it reads of a longer text: the
  /// last.
  int64_t context = 0, rereads = 0;
  /// Logits [vocab] of the token after `text`, valid until the next call. From
  /// call to call the text only grows.
  std::function<StatusOr<std::span<const float>>(std::span<const int32_t> text)>
      next;
  /// That token itself, as drawNext draws it; empty where logits are all that
  /// the model tells.
  std::function<StatusOr<int32_t>(std::span<const int32_t> text,
                                  Sampler &sampler, int64_t choices,
                                  uint64_t draw, const TokenMask *allowed)>
      choose = {};
};

/// By the model's logits program: of a longer text its last T tokens are seen.
TextModel scoringModel(TrainModel &model);
/// By one sequence of the decoder: of a text longer than the context the last
/// half of a context is read again, whenever it is full. The decoder must
/// outlive the model.
TextModel decodingModel(Decoder &decoder);

/// Generates after the prompt's tokens. An empty prompt starts a document: with
/// what frames it, or else after the tokenizer's end-of-text token, or else
/// after `startToken`. Where there is none of them it is an error.
StatusOr<GenerateResult> generateText(const TextModel &model,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink);

/// A run directory, and the one checkpoint of it that was asked for (or none).
struct RunPath {
  std::string run, checkpoint;
  std::string program() const { return run + "/" + kProgramFile; }
};
/// `path` is a run directory, or one checkpoint of it, RUN/step-000100. Of a
/// checkpoint that RUN has not, the error lists those that it has.
StatusOr<RunPath> resolveRun(const std::string &path);

/// Whether the options, the run's tokenizer and a checkpoint allow for
/// generation, as far as that is known without a model.
Status checkGenerate(const RunPath &place, const GenerateOptions &options);

/// A run's program with the weights of its checkpoint.
struct OpenedRun {
  std::unique_ptr<SessionModel> model;
  std::string checkpoint; ///< "step-000100"
};
/// The program of `options`, or the run's own. `note` receives one line for
/// each damaged checkpoint.
StatusOr<OpenedRun> openRun(const RunPath &place,
                            const GenerateOptions &options,
                            const TextSink &note);

/// generateText with all that a run directory holds: program.tsr,
/// tokenizer.json and the newest intact checkpoint. `path` may also be one
/// checkpoint, RUN/step-000100. `note` receives one line for each damaged
/// checkpoint.
StatusOr<GenerateResult> generateFromRun(const std::string &path,
                                         const GenerateOptions &options,
                                         const TextSink &sink,
                                         const TextSink &note);

/// The model of a Hugging Face directory in the program of `options`, made for
/// its config.json and with its weights. Every parameter must be there in its
/// shape, and every tensor must be a parameter, or be known to follow from
/// some.
StatusOr<std::unique_ptr<SessionModel>>
openModelDirectory(const std::string &directory,
                   const GenerateOptions &options);

/// The model of one file, with the device and the threads of `options`.
StatusOr<std::unique_ptr<SessionModel>>
openPackagedModel(const PackagedModel &shipped, const GenerateOptions &options);

/// generateText with an opened model: by programs that decode over a cache, or
/// else by `logits`.
StatusOr<GenerateResult> generateWith(SessionModel &model, bool decodes,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink);

} // namespace tessera
