// Reader of config.json for encoders of the BERT family (Devlin et al. 2018).
// Sources: the configuration and modeling files of `bert` in transformers.
#include <algorithm>

#include "models/HfReaders.h"

namespace tessera::models {
namespace {

/// Keys of training, and of poolers that BertModel does not have.
constexpr std::string_view ofHeads[] = {
    "classifier_dropout",   "directionality",
    "pooler_fc_size",       "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type"};

/// A key of published encoders whose embeddings may be truncated; not in the
/// reference.
void readCuts(ConfigFields &fields, ModelSpec &spec) {
  spec.cutsAnywhere = fields.flag("is_matryoshka", false);
  for (int64_t width : fields.integers("matryoshka_dimensions", true)) {
    if (width < 1 || width > spec.hidden)
      return fields.fail(
          "matryoshka_dimensions",
          fmt::format("{} is not a width in [1, {}]", width, spec.hidden));
    spec.vectorCuts.push_back(width);
  }
  std::ranges::sort(spec.vectorCuts);
  // A list takes precedence over "any".
  spec.cutsAnywhere &= spec.vectorCuts.empty();
}

} // namespace

void readBert(ConfigFields &fields, ModelSpec &spec) {
  spec.vocab = fields.size("vocab_size", maxVocab);
  spec.hidden = fields.size("hidden_size", maxWidth);
  spec.layers = fields.size("num_hidden_layers", maxLayers);
  spec.heads = fields.size("num_attention_heads", maxHeads);
  spec.kvHeads = spec.heads;
  spec.intermediate = fields.size("intermediate_size", maxIntermediate);
  spec.maxPositions = fields.size("max_position_embeddings", maxWidth);
  spec.tokenTypes = fields.size("type_vocab_size", maxWidth, 2);
  if (spec.hasScore && spec.tokenTypes < 2)
    fields.fail("type_vocab_size", "a cross-encoder needs 2 token types, one "
                                   "for each of a pair");
  if (spec.hidden % spec.heads != 0)
    fields.fail("hidden_size",
                fmt::format("{} is not a multiple of num_attention_heads = {}",
                            spec.hidden, spec.heads));
  spec.headDim = spec.hidden / spec.heads;

  spec.norm = NormKind::LayerNorm;
  spec.normEps = fields.number("layer_norm_eps", 1e-20, 1, 1e-12);
  spec.activation = readActivation(fields, "hidden_act", "gelu");
  spec.gatedMlp = false;
  spec.qkvBias = spec.outputBias = spec.mlpBias = true;
  // A key of the masked-language-model head, which is not built.
  spec.tieWordEmbeddings = fields.flag("tie_word_embeddings", true);
  spec.residualDropout = readDropout(fields, "hidden_dropout_prob", 0.1);
  spec.embeddingDropout = spec.residualDropout;
  spec.attentionDropout =
      readDropout(fields, "attention_probs_dropout_prob", 0.1);
  fields.requireNeutral("position_embedding_type", "absolute",
                        "positions are a learned table here");
  fields.requireNeutral("is_decoder", false, "encoder only");
  readCuts(fields, spec);
  fields.ignore(ofHeads);
}

} // namespace tessera::models
