// Types of memfold's functions, as the package pg gives and takes them; made by tools/gen_typescript.py from the catalog.
// bigint and numeric arrive as strings; a vector is passed as "[0.1,0.2]". The catalog does not say what can be null.

type Json = unknown;
type Interval = string | { days?: number; hours?: number; minutes?: number; seconds?: number };

export interface Functions {
  add_embeddings: {
    arguments: { memory_ids: string[] | null; contents: string[] | null; embeddings: string[] | null; embedding_model: string | null; tenant_id?: string | null; run_id?: string | null; wait?: boolean | null };
    row: { memory_id: string | null; status: string | null };
  };
  add_labelled_pair: {
    arguments: { content_a: string | null; content_b: string | null; label: string | null; tenant_id?: string | null; similarities?: Json | null; origin?: string | null };
    row: { add_labelled_pair: string | null };
  };
  add_labelled_pairs: {
    arguments: { pairs: Json | null; tenant_id?: string | null };
    row: { add_labelled_pairs: string | null };
  };
  adopted_claim: {
    arguments: { adoption: string | null; scope: string[] | null; content_hash: Uint8Array | null };
    row: { adopted_claim: null | null };
  };
  adopted_hash: {
    arguments: { content: string | null; profile: string | null };
    row: { adopted_hash: Uint8Array | null };
  };
  adopted_repeat: {
    arguments: { adoption: string | null; row_key: Json | null };
    row: { adopted_repeat: null | null };
  };
  apply_calibration: {
    arguments: { calibration_id: string | null };
    row: { apply_calibration: null | null };
  };
  apply_decay: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; as_of?: Date | string | null; max_operations?: number | string | null };
    row: { run_id: string | null; decayed: string | null; remaining: string | null };
  };
  approve_run: {
    arguments: { run_id: string | null; tenant_id?: string | null; verdict?: string | null; max_operations?: number | string | null };
    row: { approve_run: string | null };
  };
  ask_links: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_questions?: number | string | null };
    row: { ask_links: string | null };
  };
  attach_embedding: {
    arguments: { memory_id: string | null; embedding: string | null; embedding_model: string | null; tenant_id?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  calibrate_by_anchors: {
    arguments: { embedding_model: string | null; pairs: Json | null };
    row: { calibration_id: string | null; merge_threshold: number | null; judge_threshold: number | null; report: Json | null };
  };
  canonicalize: {
    arguments: { content: string | null; profile: string | null };
    row: { canonicalize: string | null };
  };
  canonicalizer_selftest: {
    arguments: Record<string, never>;
    row: { profile: string | null; input: string | null; expected: string | null; actual: string | null; ok: boolean | null };
  };
  check_invariants: {
    arguments: { tenant_id?: string | null };
    row: { memory_id: string | null; invariant: string | null; expected: string | null; actual: string | null };
  };
  claim_judgements: {
    arguments: { worker: string | null; tenant_id?: string | null; max_results?: number | string | null; lease?: Interval | null; review?: boolean | null; judgement_ids?: string[] | null };
    row: { tenant_id: string | null; judgement_id: string | null; bucket_id: string | null; kind: string | null; similarity: number | null; guard: string[] | null; attempts: string | null; leased_until: Date | null; memory: Json | null; other: Json | null; members: Json | null; link: Json | null };
  };
  clean_exact_duplicates: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; dry_run?: boolean | null; max_operations?: number | string | null };
    row: { run_id: string | null; memory_id: string | null; keep_id: string | null; content: string | null };
  };
  collect_pairs: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; embedding_model?: string | null; max_results?: number | string | null; min_age?: Interval | null };
    row: { evidence: string | null; label: string | null; pairs: string | null };
  };
  consolidate: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; embedding_model?: string | null; threshold?: number | null; approval?: string | null; max_operations?: number | string | null; max_judgements?: number | string | null; dry_run?: boolean | null; memory_ids?: string[] | null };
    row: { run_id: string | null; cluster: string | null; memory_id: string | null; representative_id: string | null; similarity: number | null; guard: string[] | null; content: string | null; representative_content: string | null; action: string | null };
  };
  create_text_index: {
    arguments: { text_search?: string | null };
    row: { create_text_index: null | null };
  };
  create_vector_index: {
    arguments: { embedding_model: string | null };
    row: { create_vector_index: null | null };
  };
  current_memories: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; as_of?: Date | string | null; known_at?: Date | string | null };
    row: { memory_id: string | null; content: string | null; memory_type: string | null; subject: string | null; predicate: string | null; object: string | null; valid_from: Date | null; valid_to: Date | null; repetition_count: string | null; confidence: number | null };
  };
  current_memory: {
    arguments: { id: string | null; tenant_id?: string | null };
    row: { memory_id: string | null; content: string | null; status: string | null };
  };
  derive_scope: {
    arguments: { memory_ids: string[] | null; tenant_id?: string | null };
    row: { derive_scope: null | null };
  };
  describe_pairs: {
    arguments: { pairs: Json | null; tenant_id?: string | null };
    row: { ordinal: string | null; guard: string[] | null; features: Json | null };
  };
  drop_embeddings: {
    arguments: { embedding_model: string | null; tenant_id?: string | null; after?: string | null; max_results?: number | string | null; run_id?: string | null };
    row: { run_id: string | null; dropped: string | null; last_id: string | null };
  };
  duplicate_pairs: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; embedding_model?: string | null; thresholds?: number[] | null };
    row: { threshold: number | null; pairs: string | null };
  };
  effective_confidence: {
    arguments: { memory_id: string | null; tenant_id?: string | null; as_of?: Date | string | null };
    row: { effective_confidence: number | null };
  };
  embed_pending: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null };
    row: { embed_pending: string | null };
  };
  end_reembedding: {
    arguments: { run_id: string | null; tenant_id?: string | null };
    row: { end_reembedding: string | null };
  };
  end_session: {
    arguments: { session_id: string | null; tenant_id?: string | null; bucket_id?: string | null; dry_run?: boolean | null };
    row: { run_id: string | null; merged_groups: string | null; superseded_count: string | null; compression_ratio: number | null; avg_similarity: number | null; considered: string | null };
  };
  erase_bucket: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; reason?: string | null; max_memories?: number | string | null };
    row: { erased: string | null; kept: string | null; events: string | null; remaining: string | null; current_again: string[] | null };
  };
  erase_memory: {
    arguments: { memory_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { erased: string | null; kept: string | null; events: string | null; remaining: string | null; current_again: string[] | null };
  };
  erase_source: {
    arguments: { source_turn_id: string | null; tenant_id?: string | null; reason?: string | null; max_memories?: number | string | null };
    row: { erased: string | null; kept: string | null; events: string | null; remaining: string | null; current_again: string[] | null };
  };
  erase_tenant: {
    arguments: { tenant_id: string | null; reason?: string | null; max_memories?: number | string | null };
    row: { erased: string | null; kept: string | null; events: string | null; remaining: string | null; current_again: string[] | null };
  };
  explain_memory: {
    arguments: { memory_id: string | null; tenant_id?: string | null };
    row: { explain_memory: string | null };
  };
  export_bucket: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null };
    row: { export_bucket: Json | null };
  };
  fail_judgement: {
    arguments: { judgement_id: string | null; error: string | null; tenant_id?: string | null; worker?: string | null; counted?: boolean | null; retry_after?: Interval | null; model?: string | null; input_tokens?: number | string | null; output_tokens?: number | string | null; cost?: number | null };
    row: { fail_judgement: string | null };
  };
  find_similar: {
    arguments: { embedding: string | null; embedding_model: string | null; tenant_id?: string | null; bucket_id?: string | null; threshold?: number | null; memory_type?: string | null; subject?: string | null; predicate?: string | null; max_results?: number | string | null };
    row: { memory_id: string | null; matched_id: string | null; similarity: number | null; content: string | null; matched_similarity: number | null; matched_content: string | null; complete: boolean | null };
  };
  forget_memories: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; subject?: string | null; predicate?: string | null; query_embedding?: string | null; embedding_model?: string | null; min_similarity?: number | null; erase?: boolean | null; dry_run?: boolean | null; reason?: string | null };
    row: { run_id: string | null; memory_id: string | null; action: string | null; subject: string | null; predicate: string | null; content: string | null; similarity: number | null };
  };
  import_bucket: {
    arguments: { lines: Json | null; tenant_id?: string | null; bucket_id?: string | null; rules?: boolean | null };
    row: { import_bucket: string | null };
  };
  ingest_memories: {
    arguments: { candidates: Json | null; tenant_id?: string | null; on_error?: string | null; embeddings?: string[] | null };
    row: { ordinal: string | null; action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null; sqlstate: string | null; error: string | null; detail: string | null; hint: string | null };
  };
  ingest_memory: {
    arguments: { content: string | null; tenant_id?: string | null; bucket_id?: string | null; memory_type?: string | null; subject?: string | null; predicate?: string | null; object?: string | null; embedding?: string | null; embedding_model?: string | null; source_turn_ids?: string[] | null; source_confidence?: number | null; extractor_confidence?: number | null; session_id?: string | null; origin?: string | null; metadata?: Json | null; observed_at?: Date | string | null; valid_from?: Date | string | null; valid_until?: Date | string | null; idempotency_key?: string | null; if_known?: boolean | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  ingest_plain_rows: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_rows?: number | string | null };
    row: { ingested: string | null; busy: string | null };
  };
  known_memory: {
    arguments: { content: string | null; tenant_id?: string | null; bucket_id?: string | null; memory_type?: string | null; subject?: string | null; predicate?: string | null; metadata?: Json | null };
    row: { memory_id: string | null; matched_id: string | null; status: string | null; content_hash: Uint8Array | null };
  };
  link_predicate: {
    arguments: { alias: string | null; predicate: string | null; tenant_id?: string | null; bucket_id?: string | null };
    row: { link_predicate: string | null };
  };
  link_subject: {
    arguments: { alias: string | null; subject: string | null; tenant_id?: string | null; bucket_id?: string | null };
    row: { link_subject: string | null };
  };
  merge_memories: {
    arguments: { memory_id: string | null; into_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  missing_embeddings: {
    arguments: { from_model: string | null; to_model: string | null; tenant_id?: string | null; after?: string | null; max_results?: number | string | null };
    row: { memory_id: string | null; bucket_id: string | null; content: string | null };
  };
  pairs_to_label: {
    arguments: { tenant_id?: string | null; embedding_model?: string | null; max_results?: number | string | null };
    row: { pair_id: string | null; content_a: string | null; content_b: string | null; label: string | null; evidence: string | null; similarity: number | null; guard: string[] | null };
  };
  pending_embeddings: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null };
    row: { memory_id: string | null; bucket_id: string | null; content: string | null; created_at: Date | null };
  };
  preview_memory: {
    arguments: { content: string | null; tenant_id?: string | null; bucket_id?: string | null; memory_type?: string | null; subject?: string | null; predicate?: string | null; object?: string | null; embedding?: string | null; embedding_model?: string | null; source_turn_ids?: string[] | null; source_confidence?: number | null; extractor_confidence?: number | null; session_id?: string | null; origin?: string | null; metadata?: Json | null; observed_at?: Date | string | null; valid_from?: Date | string | null; valid_until?: Date | string | null; idempotency_key?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  profile: {
    arguments: { subject: string | null; tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null };
    row: { memory_id: string | null; content: string | null; predicate: string | null; object: string | null; valid_from: Date | null; disputed_by: string[] | null };
  };
  prune_memories: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_confidence?: number | null; unused_for?: Interval | null; max_operations?: number | string | null; dry_run?: boolean | null };
    row: { run_id: string | null; memory_id: string | null; content: string | null; confidence: number | null; last_used: Date | null; helpful_count: string | null; harmful_count: string | null; reason: string | null };
  };
  record_feedback: {
    arguments: { memory_id: string | null; helpful: boolean | null; tenant_id?: string | null };
    row: { helpful_count: string | null; harmful_count: string | null };
  };
  reembed_status: {
    arguments: { from_model: string | null; to_model: string | null; tenant_id?: string | null };
    row: { old_vectors: string | null; new_vectors: string | null; missing: string | null; pending: string | null; own_thresholds: string | null; run_id: string | null; added: string | null };
  };
  register_embedding_model: {
    arguments: { embedding_model: string | null; dimensions: number | string | null; merge_threshold?: number | null; judge_threshold?: number | null };
    row: { register_embedding_model: boolean | null };
  };
  reject_memory: {
    arguments: { memory_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  remove_labelled_pair: {
    arguments: { pair_id: string | null; tenant_id?: string | null };
    row: { remove_labelled_pair: null | null };
  };
  replace_embedding_model: {
    arguments: { embedding_model: string | null; replaced_by: string | null };
    row: { replace_embedding_model: null | null };
  };
  replay_bucket: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; calibration_id?: string | null; embedding_model?: string | null; max_memories?: number | string | null };
    row: { memory_id: string | null; other_id: string | null; action: string | null; similarity: number | null; guard: string[] | null; reason: string | null };
  };
  resolve_judgement: {
    arguments: { judgement_id: string | null; verdict: string | null; tenant_id?: string | null; confidence?: number | null; reason?: string | null; merged_text?: string | null; richer_memory_id?: string | null; model?: string | null; input_tokens?: number | string | null; output_tokens?: number | string | null; cost?: number | null; member_ids?: string[] | null };
    row: { status: string | null; verdict: string | null; action: string | null; memory_id: string | null; event_id: string | null; run_id: string | null };
  };
  retry_judgements: {
    arguments: { tenant_id?: string | null };
    row: { retry_judgements: string | null };
  };
  run_maintenance: {
    arguments: { tenant_id?: string | null; tasks?: string[] | null };
    row: { run_maintenance: Json | null };
  };
  search_memories: {
    arguments: { query_embedding?: string | null; embedding_model?: string | null; tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null; memory_type?: string | null; subject?: string | null; predicate?: string | null; session_id?: string | null; metadata?: Json | null; min_confidence?: number | null; as_of?: Date | string | null; deduplicate?: boolean | null; dedup_threshold?: number | null; touch?: boolean | null; show_collapsed?: boolean | null; query?: string | null; bucket_ids?: string[] | null; bucket_prefix?: string | null; metadata_path?: string | null; min_similarity?: number | null };
    row: { memory_id: string | null; content: string | null; memory_type: string | null; subject: string | null; predicate: string | null; object: string | null; score: number | null; similarity: number | null; matched_id: string | null; matched_similarity: number | null; confidence: number | null; repetition_count: string | null; metadata: Json | null; session_id: string | null; first_seen: Date | null; last_seen: Date | null; collapsed_ids: string[] | null; collapsed_count: string | null; collapsed_into: string | null; matched_content: string | null; bucket_id: string | null; word_share: number | null; complete: boolean | null; valid_from: Date | null; disputed_by: string[] | null };
  };
  set_common_predicates: {
    arguments: { tenant_id?: string | null };
    row: { set_common_predicates: string | null };
  };
  set_options: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; memory_type?: string | null; min_confidence?: number | null; search_threshold?: number | null; touch?: boolean | null; rank_confidence?: number | null; rank_feedback?: number | null; consolidate_threshold?: number | null; max_cluster_size?: number | string | null; protected_types?: string[] | null; decay_rate?: number | null; decay_floor?: number | null; decay_interval?: Interval | null; key_retention?: Interval | null; consolidate_interval?: Interval | null; sweep_interval?: Interval | null; prune_interval?: Interval | null; text_search?: string | null; link_interval?: Interval | null; consolidate_budget?: number | string | null };
    row: { tenant_id: string | null; bucket_id: string | null; memory_type: string | null; min_confidence: number | null; search_threshold: number | null; touch: boolean | null; rank_confidence: number | null; rank_feedback: number | null; consolidate_threshold: number | null; max_cluster_size: string | null; session_threshold: number | null; protected_types: string[] | null; protected_confidence: number | null; decay_rate: number | null; decay_floor: number | null; decay_interval: Interval | null; key_retention: Interval | null; consolidate_interval: Interval | null; sweep_interval: Interval | null; prune_interval: Interval | null; link_interval: Interval | null; consolidate_budget: string | null; text_search: string | null; updated_at: Date | null };
  };
  set_policy: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; memory_type?: string | null; preset?: string | null; dedup?: string | null; canonicalizer?: string | null; key_fields?: string[] | null; metadata_keys?: string[] | null; scope?: string | null; neighbours?: number | string | null; merge_threshold?: number | null; judge_threshold?: number | null; lexical_threshold?: number | null; guard?: string | null; merge_veto?: number | null; on_ambiguous?: string | null; on_merge?: string | null; on_refinement?: string | null; metadata_merge?: string | null; conflict?: string | null; confidence_floor?: number | null; notify?: boolean | null; weights?: number[] | null; max_content_length?: number | string | null; max_metadata_size?: number | string | null; max_session_repeats?: number | string | null; embed?: string | null; embed_model?: string | null; segmenter?: string | null; agent_actions_per_hour?: number | string | null };
    row: { tenant_id: string | null; bucket_id: string | null; memory_type: string | null; preset: string | null; dedup: string | null; canonicalizer: string | null; key_fields: string | null; metadata_keys: string[] | null; scope: string | null; neighbours: string | null; merge_threshold: number | null; merge_inclusive: boolean | null; judge_threshold: number | null; similar_threshold: number | null; lexical_threshold: number | null; guard: string | null; merge_veto: number | null; on_ambiguous: string | null; on_merge: string | null; on_refinement: string | null; metadata_merge: string | null; conflict: string | null; confidence_floor: number | null; weight_source: number | null; weight_extractor: number | null; weight_repetition: number | null; notify: boolean | null; max_content_length: string | null; max_metadata_size: string | null; updated_at: Date | null; lexical_neighbours: string | null; session_neighbours: string | null; metadata_max: string[] | null; on_judge_failure: string | null; rehash_run: string | null; rehash_from_canonicalizer: string | null; rehash_from_key_fields: string | null; rehash_from_metadata_keys: string[] | null; max_session_repeats: string | null; embed: string | null; embed_model: string | null; segmenter: string | null; agent_actions_per_hour: string | null };
  };
  set_predicate: {
    arguments: { predicate: string | null; tenant_id?: string | null; cardinality?: string | null; conflict?: string | null };
    row: { set_predicate: string | null };
  };
  start_reembedding: {
    arguments: { from_model: string | null; to_model: string | null; tenant_id?: string | null };
    row: { start_reembedding: string | null };
  };
  suggest_links: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null };
    row: { kind: string | null; alias: string | null; name: string | null; score: number | null; reasons: string[] | null; evidence: Json | null };
  };
  suggest_predicates: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; max_results?: number | string | null };
    row: { predicate: string | null; score: number | null; subjects: string | null; changed: string | null; most_values: string | null; returned: string | null; together: string | null; memory_ids: string[] | null };
  };
  supersede_memory: {
    arguments: { memory_id: string | null; by_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  sweep_duplicates: {
    arguments: { tenant_id?: string | null; bucket_id?: string | null; embedding_model?: string | null; dry_run?: boolean | null; max_operations?: number | string | null; memory_ids?: string[] | null; into_run?: string | null };
    row: { run_id: string | null; cluster: string | null; memory_id: string | null; representative_id: string | null; similarity: number | null; guard: string[] | null; content: string | null; representative_content: string | null; action: string | null };
  };
  tenants: {
    arguments: Record<string, never>;
    row: { tenants: string | null };
  };
  text_index_ddl: {
    arguments: { text_search?: string | null; drop_index?: boolean | null };
    row: { text_index_ddl: string | null };
  };
  undo: {
    arguments: { event_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { event_id: string | null; memory_id: string | null; status: string | null; content: string | null; run_id: string | null };
  };
  undo_actor: {
    arguments: { actor: string | null; since: Date | string | null; tenant_id?: string | null; dry_run?: boolean | null; reason?: string | null };
    row: { event_id: string | null; memory_id: string | null; status: string | null; content: string | null; run_id: string | null };
  };
  undo_calibration: {
    arguments: { embedding_model: string | null };
    row: { undo_calibration: string | null };
  };
  undo_run: {
    arguments: { run_id: string | null; tenant_id?: string | null; reason?: string | null };
    row: { event_id: string | null; memory_id: string | null; status: string | null; content: string | null; run_id: string | null };
  };
  unlink_predicate: {
    arguments: { alias: string | null; tenant_id?: string | null; bucket_id?: string | null };
    row: { unlink_predicate: string | null };
  };
  unlink_subject: {
    arguments: { alias: string | null; tenant_id?: string | null; bucket_id?: string | null; subject?: string | null };
    row: { unlink_subject: string | null };
  };
  unregister_embedding_model: {
    arguments: { embedding_model: string | null };
    row: { unregister_embedding_model: null | null };
  };
  update_memory: {
    arguments: { memory_id: string | null; content: string | null; tenant_id?: string | null; object?: string | null; embedding?: string | null; embedding_model?: string | null; reason?: string | null };
    row: { action: string | null; memory_id: string | null; tier: number | null; method: string | null; similarity: number | null; superseded_id: string | null; judgement_id: string | null; event_id: string | null; similar: Json | null };
  };
  vector_index_ddl: {
    arguments: { embedding_model: string | null; drop_index?: boolean | null };
    row: { vector_index_ddl: string | null };
  };
}
