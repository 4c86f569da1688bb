"""Weights, configs and models that cannot be read, fitted or written."""

import dataclasses
import json
import pickle
import re
import sys
from unittest import mock

import numpy as np
import pytest

from tests import random_models
from tests import toy
from tests.extras.zoo import test_backbone
from tests.extras.zoo import test_damage
from tests.extras.zoo import test_flexivit
from tests.extras.zoo import test_foreign
from tests.extras.zoo import test_removed
from tests.extras.zoo import test_zero_shot
from tests.extras.zoo import zoo_models
from tests.extras.zoo.configs import test_config_json
from tests.extras.zoo.configs import test_declared
from tests.extras.zoo.configs import test_huggingface
from tests.extras.zoo.configs import test_preprocessing
from tests.extras.zoo.configs import test_timm
from tests.extras.zoo.families import test_meta
import vit_jax
from vit_jax.data import preprocessing
from vit_jax.experiment import load_config
from vit_jax.extras.zoo import foreign
from vit_jax.extras.zoo import open_file
from vit_jax.extras.zoo import removed
from vit_jax.extras.zoo import zero_shot
from vit_jax.extras.zoo.configs import huggingface
from vit_jax.extras.zoo.configs import timm
from vit_jax.extras.zoo.configs import timm_arguments
from vit_jax.extras.zoo.configs import timm_export
from vit_jax.models import factory
from vit_jax.weights import overrides as overrides_lib

# Each row of a table: the arguments of a call, and a part of its error.
OVERRIDES = [
    *((change, 'expected .*, found ') for change in (
        {'variant': 'Ti/16'}, {'position': 'none'}, {'num_heads': 4},
        {'layer_scale': 0.1}, {'backbone': {'depths': (3, 4, 9)}})),
    ({'variant': 'R50x1'}, "expected 'resnet', found the arrays of a vit"),
    ({'labels': ['a', 'b']}, '2 labels, but the head has 5 classes'),
    ({'resolution': 30}, '30x30 does not divide into patches')]
ARRAYS = [
    *(({name: None}, f'{name}: missing') for name in (
        'Transformer/encoderblock_1/LayerNorm_0/scale',
        'Transformer/encoderblock_0/MultiHeadDotProductAttention_0/key/kernel')
      ),
    ({'head/bias': None}, 'head/dense/bias: expected .*found nothing'),
    ({'embedding/bias': None}, 'patches/bias: expected .*found nothing'),
    ({'extra/kernel': np.zeros(3, np.float32)}, 'extra/kernel: unexpected'),
    ({'head/bias': np.zeros(6, np.float32)}, r'expected \(5,\), found \(6,\)'),
    ({'head/bias': np.zeros(5, np.int32)}, 'head/bias has dtype int32'),
    ({'cls': np.full((1, 1, 12), np.nan)}, 'cls holds 12 of 12 values'),
    ({'cls': np.zeros((2, 12))}, r'cls: expected \[1 n d\], found \(2, 12\)'),
    ({'embedding/kernel': np.ones(())}, 'embedding/kernel: expected'),
    ({'head/bias': np.ones((5, 3))}, 'head/bias -> head/dense/bias: expected'),
    ({'Transformer/encoderblock_1/LayerNorm_0/scale': np.zeros(13)},
     r'\(13,\) \(Transformer/encoderblock_1/LayerNorm_0/scale\)')]
COMPONENTS = [({name: 3}, f'{name}: unexpected .*{component}')
              for name, component in (
                  ('blocks.0.attn.rel_pos_h', 'SAM'),
                  ('blocks.1.proj.weight', 'Hiera'),
                  ('layers.0.blocks.0.attn.qkv.bias', 'Swin'),
                  ('patch_embed.backbone.bn1.running_mean', 'batch norm'))]
DINOV3 = {'storage_tokens': 4, 'mask_token': 4, 'rope_embed.periods': 4}


def load_arrays(root, family, changed, zeros=(), **settings):
  arrays = zoo_models.with_zeros(
      {**zoo_models.arrays(family, **settings), **changed}, dict(zeros))
  test_foreign.load(family, {
      name: a for name, a in arrays.items() if a is not None}, root).read()


def load_video(root):
  """Loads V-JEPA's patches of two frames."""
  kernel = zoo_models.arrays('timm')['patch_embed.proj.weight']
  load_arrays(root, 'timm', {
      'patch_embed.proj.weight': np.stack([kernel, kernel], axis=2)})


def load_resnet_d(root):
  """A component is named before its arrays."""
  foreign.load(zoo_models.write_folder(
      root, 'timm', {'architecture': 'vit_small_resnet26d_224'},
      found={**zoo_models.arrays('timm'), 'blocks.0.attn.gate.1': np.ones(3)}))


def load_damaged(root, family, damage):
  (root / 'x').write_bytes(damage(test_damage.content(family, root / 'x')))
  foreign.load(root / 'x', {'num_heads': 2})


def flip_a_bit(data):
  return data[:100] + bytes([data[100] ^ 1]) + data[101:]


def load_a_program(root):
  class Program:
    def __reduce__(self):
      return (root.joinpath('ran').touch, ())

  zoo_models.write(root / 'x.npz', 'npz')
  with np.load(root / 'x.npz') as file:
    arrays = dict(file)
  np.savez(root / 'x.npz', **{**arrays, 'cls': np.array([Program()], object)})
  try:
    foreign.load(root / 'x.npz')
  finally:
    assert not (root / 'ran').exists()


def load_without_torch(root):
  (root / 'x.pth').write_bytes(pickle.dumps({'a': 1}, protocol=2))
  with mock.patch.dict(sys.modules, torch=None):
    open_file.open_weights(root / 'x.pth')


def load_folder(root, held):
  for name, text in held.items():
    (root / name).write_text(text)
  foreign.load(root)


INDEX = 'm.safetensors.index.json'
FOLDERS = [
    ({}, 'Found: nothing'), ({'cat.jpg': '?'}, 'Found: cat.jpg'),
    ({'config.json': '{}', 'notes.txt': 'x'}, 'Found: config.json, notes'),
    ({'model.safetensors': ''}, 'neither weights'),
    *(({INDEX: index}, re.escape(INDEX))
      for index in ('{}', '{"weight_map": {"a": []}}', '{', '[]')),
    *(({INDEX: json.dumps({'weight_map': {'a': name}})},
       'names the file .* is missing')
      for name in ('none', '', '..', '/dev/zero'))]
CONFIGS = [
    ('huggingface', {'hidden_size': 24}, 'patches/kernel: expected .*24'),
    ('huggingface', {'patch_size': 16}, '17 position .*32x32'),
    ('huggingface', {'qkv_bias': False}, 'qkv_bias: expected nothing, found'),
    ('huggingface', {'num_hidden_layers': 12}, r'expected \(12, .*found \(2,'),
    ('huggingface', {'model_type': 'swin'}, "type is 'swin'.*shifted windows"),
    ('huggingface', {'hidden_size': 'wide'}, 'model.width must be int'),
    ('huggingface', {'id2label': zoo_models.labels(start=1)},
     '0 to 4, but the first are 1, 2'),
    ('timm', {'label_names': zoo_models.labels(start=1)},
     '0 to 4, but the first are 1, 2'),
    ('timm', {'architecture': 'swin_tiny'}, "is 'swin_tiny'.*shifted windows"),
    ('timm', {'architecture': 'resnetv2_50x1_bit', 'model_args': {},
              'global_pool': 'avg'},
     'for timm_bit, but the arrays .* timm ViT'),
    ('timm', {'num_classes': 7}, r'expected \(7,\), found \(5,\)'),
    ('timm', {'model_args': [3]}, 'is malformed: AttributeError'),
    ('timm', {'global_pool': 'map'}, 'pooling/probe: expected'),
    ('timm', {'pretrained_cfg': {'mean': 0.5}}, 'is malformed: TypeError')]


def load_config_json(root, family, change):
  test_config_json.write(root, family, **change)
  foreign.load(root / 'model.safetensors')


METADATA = [
    ({'width': 24}, r'patches/bias: expected \(24,\), found \(12,\)'),
    ({'depth': 3}, r'expected \(3, .*found \(2, '),
    ({'num_classes': 6}, r'expected \(6,\), found \(5,\)'),
    ({'position': 'none'}, 'positions: expected nothing'),
    ({'pooling': 'average', 'cls': False}, '17 position .*do not'),
    ({'num_heads': 5}, 'does not divide into 5 heads'),
    ({'depht': 3}, "Did you mean 'depth'")]
MALFORMED = [
    ('npz', '{', 'Expecting'), ('npz', '[' * 100_000, 'nested too deeply'),
    *(('timm', text, words) for text, words in (
        ('{', 'Expecting'), ('[' * 100_000, 'nested too deeply'),
        ('{"preprocess": {}}', r'needs the key.s. model'),
        ('{"model": {}, "preprocess": {}}', 'neither a variant nor width'),
        ('{"model": {"variant": "B/16"}, "preprocess": {}}',
         'needs the key.s. resolution'),
        ('{"model": {}, "preprocess": {}, "code": 1}', 'Unknown key .*code')))]
PROCESSORS = [
    ({'image_mean': 3}, 'malformed'),
    ({'image_std': [0, 1, 1]}, 'std must be above 0'),
    ({'resample': 9}, 'resample is 9'), ({'rescale_offset': True}, 'an offset'),
    ({'rescale_factor': '1/255'}, 'malformed')]
HUGGINGFACE = [
    ({'model_type': 'aimv2_vision_model', 'is_native': True}, 'is_native'),
    ({'model_type': 'vit_mae'}, 'which has the decoder of MAE'),
    ({**test_huggingface.HF, 'hidden_act': 'relu'},
     "Unknown hidden_act 'relu'"),
    ({'model_type': 'dinov3_vit', 'use_gated_mlp': True,
      'hidden_act': 'gelu'}, "hidden_act is 'gelu'.* only with 'silu'")]
BIT = {'architecture': 'resnetv2_50x1_bit'}
NAFLEX = {'architecture': 'naflexvit_base_patch16_gap'}
TIMM = [
    ({**NAFLEX, 'model_args': {'rope_type': 'axial'}},
     "rope_type='axial', which is not supported"),
    ({**NAFLEX, 'model_args': {'pos_embed_align_corners': True}},
     'lack that interpolation'),
    *(({'architecture': name}, component) for name, component in (
        ('vit_base_mci_224', 'a convolutional stem'),
        ('hiera_tiny_224.mae', 'pooling between layers'),
        ('samvit_base_patch16.sa1b', 'attention within windows'),
        ('swin_tiny_patch4_window7_224', 'within shifted windows'),
        ('convnext_tiny.fb_in1k', 'a convolutional network'),
        ('vit_small_resnet26d_224', 'a ResNet-D with batch norm'),
        ('resnetv2_50', 'which is unknown, and so are num_'))),
    *(({**test_timm.BASE, 'model_args': test_timm.without(**{key: value})},
       words) for key, value, words in (
           ('norm_layer', 'batchnorm', "Unknown norm_layer 'batchnorm'"),
           ('in_chans', 1, 'model_args has in_chans=1'),
           ('of_next_year', 1, 'model_args has of_next_year=1'),
           ('act_layer', 'relu', "Unknown act_layer 'relu'"),
           ('global_pool', '', 'Unknown global_pool'))),
    ({**test_timm.BASE, 'global_pool': 'avgmax'}, 'Unknown global_pool'),
    ({**BIT, 'global_pool': 'max'}, 'expected avg'),
    ({**BIT, 'model_args': {'avg_down': True}},
     'model_args has avg_down=True')]
PREPROCESSING = [
    ({'interpolation': 'random'}, "interpolation is 'random'"),
    ({'mean': [0.5, 0.5]}, 'mean must be one number, or'),
    ({'crop_pct': 0.9, 'crop_mode': 'border'}, "Unknown crop_mode 'border'"),
    ({'input_size': [1, 32, 32]}, 'input_size must be')]
# The error names only what the nearest architecture lacks.
NEAREST = [(settings, f'timm has no architecture with {names}. Save the model '
            'as orbax') for settings, names in (
    ({'variant': 'R200x3'}, 'backbone=.*'),
    ({**random_models.TINY, **random_models.HYBRID}, 'backbone=.*'),
    *(({**random_models.TINY, 'num_heads': 3, 'gelu': 'exact', **settings},
       names) for settings, names in (
           ({'mlp': 'swiglu', 'layer_norm_epsilon': 1e-5},
            'layer_norm_epsilon=1e-05'),
           ({'layer_norm_epsilon': 1e-12}, 'layer_norm_epsilon=1e-12'),
           ({'pool_norm': True}, 'final_norm=True'),
           ({'position': 'relative_2d', 'pooling': 'attention'},
            "pooling='attention'"),
           ({'pool_heads': 3, 'pooling': 'attention'}, 'pool_heads=3'),
           ({'backbone': {'depths': (3, 4, 9)}, 'post_norm': True},
            r'backbone=StemConfig\(.*\)'),
           ({'parallel': True, 'differential': True, 'position_cls': False},
            'layer_scale=None'),
           ({'rotary': {'register_base': 2.0}}, r'rotary=RotaryConfig\(.*\)'),
           ({'key_bias': False, 'gelu': 'quick', 'pool_prefix': True},
            "gelu='quick', pool_prefix=True"),
           # Scales of attention alone are no NaFlex ViT of timm.
           ({'position': 'factorized', 'pooling': 'average', 'layer_scale': 0.1,
             'layer_scale_mlp': False}, '.*layer_scale_mlp=False'))))]


def save(root, form, settings, **preprocess):
  model = random_models.make_tiny(**settings)
  dataclasses.replace(model, preprocess=dataclasses.replace(
      model.preprocess, **preprocess)).save(root / 'x', form=form)


def save_what_is_read_back_otherwise(root):
  try:
    with mock.patch.dict(timm_arguments.GELU, exact='gelu_tanh'):
      save(root, 'timm', {'gelu': 'exact'})
  finally:
    assert not list(root.iterdir())


FLEXIVIT = [
    ((), {}, r'flexivit needs the patch sizes .*objective.patch_sizes=8'),
    ((0, 4), {}, 'patch_sizes must be at least 1'),
    ((3, 4), {}, 'objective.patch_sizes: .* patches of 3x3'),
    ((2, 4), {'position': 'relative_2d'},
     "objective.patch_sizes needs .*position='relative_2d'"),
    ((2, 4), {'name': 'ablation', 'position_at': 'layers'},
     'objective.patch_sizes needs .*model.name=ablation'),
    ((1, 2), {'backbone': {'depths': ()}, 'patch': 1},
     'objective.patch_sizes needs .*model.name=hybrid')]
FACTORY = [
    ({'variant': 'vit_smal_patch16_dinov3'}, 'vit_small_patch16_dinov3'),
    *(({**test_backbone.DIFFERENTIAL, **settings},
       'differential attention needs heads') for settings in (
           {'rotary': {}}, {'position': 'relative_2d'}, {'num_kv_heads': 1},
           {'width': 14}))]


def attach(root, arrays=(), settings=test_zero_shot.CLIP):
  zero_shot.attach(random_models.make_tiny(**settings), test_zero_shot.write(
      root / 'x.npz', **dict(arrays)))


def attach_file(root, change):
  path = test_zero_shot.write(root / 'x.npz')
  change(path)
  zero_shot.attach(random_models.make_tiny(**test_zero_shot.CLIP), path)


TEXTS = [
    ({'width': 5}, 'width 5, but the image embeddings of .* have width 6'),
    ({'labels': np.array(['a', 'b', 'a'])}, r'\[3, 6\], .* 2 different labels'),
    ({'scale': np.nan}, 'not finite'),
    ({'embeddings': np.zeros((3, 6))}, 'an embedding is zero'),
    ({'labels': np.array([['a']], object)}, 'array of Python objects')]
TEXT_FILES = [
    (lambda path: np.savez(path, labels=np.array(test_zero_shot.LABELS)),
     r"'embeddings'.*Expected an \.npz file"),
    (lambda path: path.write_bytes(path.read_bytes()[:-100]),
     'Cannot read the text embeddings')]


def load_removed_config(root, config):
  zoo_models.write_folder(root, 'timm', config)
  vit_jax.load(root, log=None)


def load_removed_array(root, name):
  zoo_models.write(root / 'x', 'npz' if '/' in name else 'timm', (
      zoo_models.with_zeros(zoo_models.arrays('timm'), {name: (2, 2)})))
  vit_jax.load(root / 'x', log=None)


def parse_removed(_, settings):
  factory.parse({**test_removed.VIT, **settings})


REMOVED = [
    ('V-JEPA 2', load_removed_config, [{'model_type': 'vjepa2'}]),
    ('V-JEPA 2', load_removed_array, [
        'encoder.embeddings.patch_embeddings.proj.weight',
        'vjepa2.encoder.embeddings.patch_embeddings.proj.weight']),
    ('V-JEPA 2', parse_removed, [{'rotary': {'video': True}}]),
    ('Qwen3-ViT', load_removed_config, [{'architecture': name} for name in (
        'qwen3_vit_88m', 'qwen3_vit_306m_merge', 'deepseek_vit_412m_align',
        'deepseek_vit_412m.deepseek_v4_1_flash')]),
    ('Qwen3-ViT', load_removed_array, [
        'encoder.merger.fc1.weight', 'merger.fc1.weight',
        'encoder.aligner.fc1.weight']),
    ('Qwen3-ViT', parse_removed, [
        {'variant': 'qwen3_vit_88m'}, {'name': 'backbone', 'merge': 2},
        {'merge': 2, 'merge_mlp_dim': 4, 'merge_dim': 4},
        {'pool_norm_affine': False}, {'mlp_bias': False}]),
    ("MLCD's", load_removed_config, [{'model_type': 'mlcd_vision_model'}]),
    ("MLCD's", load_removed_array, [
        'vision_model.class_pos_emb', 'class_pos_emb']),
    ("MLCD's", parse_removed, [{'rotary': {'cls': True}, 'position': 'none'}]),
    ("Scenic's", load_removed_array, [
        'encoder/ToTokenSequence_0/embedding/kernel']),
    ("evaluation at each image's own grid",
     lambda _, op: preprocessing.parse({'resolution': 32, 'ops': [op]}),
     [{'op': 'resize_to_patches', 'patch': 8}])]


@pytest.mark.parametrize(('call', 'arguments', 'message'), [
    (call, arguments, message) for call, rows in (
        (lambda root, overrides: test_foreign.load(
            'npz', zoo_models.arrays('npz'), root, **overrides), OVERRIDES),
        (lambda root, changed: load_arrays(root, 'npz', changed), ARRAYS),
        (lambda root, zeros: load_arrays(root, 'timm', {}, zeros), COMPONENTS),
        (lambda root: load_arrays(
            root, 'timm', {}, DINOV3, **test_meta.DINOV2, position='none'),
         [[r'rope_embed.periods: unexpected \(Meta.s names of DINOv3; load']]),
        (load_video, [['several video frames .* lack']]),
        (load_resnet_d, [['has a ResNet-D']]),
        # Their zero padding differs from that of the published BiT.
        (lambda root: test_foreign.load('bit', {
            'root_block/conv_root/kernel': np.ones((7, 7, 3, 32)),
            'block1/unit01/gn1/scale': np.ones((1, 1, 1, 32))}, root),
         [['gn1/scale: unex.*bit_paper, which']]),
        (load_damaged, [(*how, '{root}/' + words) for *how, words in (
            *test_damage.DAMAGE,
            ('npz', lambda _: bytes(9), test_damage.NO_WEIGHTS),
            ('pytorch', flip_a_bit, 'x .*checksum of x/data.pkl differs'))]),
        (load_a_program, [['{root}.*cls.npy is an array of Python objects']]),
        (load_without_torch, [['torch is not installed. Install it']]),
        (load_folder, [(held, '(?s)(?=.*{root}).*' + words)
                       for held, words in FOLDERS]),
        (load_config_json, [
            (*config, f'(?s)config.json .*{words}.*move the weights out of its '
             'folder') for *config, words in CONFIGS]),
        (lambda root, change: test_declared.load(
            root / 'x', 'timm', json.dumps(
                test_declared.metadata(change=change))),
         [(change, f'(?s)(?=.*vit_jax in the metadata of).*{words}')
          for change, words in METADATA]),
        (lambda root, family, text: test_declared.load(
            root / 'x', family, text),
         [(*text, f'is malformed: .*{words}') for *text, words in MALFORMED]),
        (lambda root, processor: test_huggingface.load(
            root, test_huggingface.HF, processor), PROCESSORS),
        (lambda _, config: huggingface.parse(config), HUGGINGFACE),
        (lambda _, config: timm.parse(config), TIMM),
        (lambda root, found: test_timm.load(
            root, {**test_timm.BASE, 'pretrained_cfg': found}), PREPROCESSING),
        (lambda _, crop: overrides_lib.parse({'crop': crop}),
         [(2, 'crop must be above 0 and at most 1')]),
        (lambda _, settings: test_timm.exported(**settings), NEAREST),
        (lambda _, ops: timm_export.config_json(random_models.make(
            test_preprocessing.BACKBONE, side=64, ops=ops)), [
                (ops, 'resizes once, by a filter of Pillow, .* to 64 x 64, '
                 '.*npz') for ops in test_preprocessing.OPERATIONS
                if ops[-1] != test_preprocessing.CROP or len(ops) == 1]),
        (lambda root: save(root, 'timm', {}, value_range=(0, 128)),
         [['value_range .* Save it as orbax']]),
        (lambda root: save(root, 'timm', {}, value_range=(0, 10_000),
                           pixel_dtype='uint16'),
         [['value_range .* Save it as orbax']]),
        (lambda root: save(root, 'npz', {'registers': 1}),
         [["of 'backbone'. Save it as orbax"]]),
        (lambda root, settings: vit_jax.load(
            'photos', log=None, **settings).save(root / 'x', form='timm'), [
                ({'resolution': 64}, 'would refuse images of 64 x 64'),
                ({'patch': 8}, 'would refuse images of 32 x 32')]),
        (save_what_is_read_back_otherwise, [[
            "timm cannot store the model: gelu='exact' would be 'tanh'. Save "
            'it as orbax, or first load it with']]),
        (lambda _, sizes, model: toy.build(model=model, objective={
            **test_flexivit.OBJECTIVE, 'patch_sizes': sizes}), FLEXIVIT),
        (lambda _, model, *overrides: load_config.load(
            toy.config(model=model), overrides), [
                ({'patch_sizes': [2, 4], 'registers': 1},
                 '^model.patch_sizes is 2,4, .*--config.objective.name=flexivit'
                 ' --config.objective.patch_sizes=2,4'),
                ({}, 'model.patch_sizes=2,4', 'objective.patch_sizes=2,4')]),
        (lambda _, settings: factory.parse(settings), FACTORY),
        (attach, TEXTS), (attach_file, TEXT_FILES),
        (lambda root: attach(root, settings=random_models.RESNET),
         [['expected the ViT image tower']]),
        *((call, [(example, f'does not support {words}.* last commit that does '
                   f'is {removed.LAST}') for example in examples])
          for words, call, examples in REMOVED),
    ) for *arguments, message in rows])
def test_an_error_names_its_cause(tmp_path, call, arguments, message):
  with pytest.raises(ValueError, match=message.replace(
      '{root}', re.escape(str(tmp_path)))):
    call(tmp_path, *arguments)
