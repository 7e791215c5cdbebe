r"""Classes of images by a Vision Transformer (Dosovitskiy et al., 2021).

    bert-jax train --config image_classification:directory=photos,init_from=MODEL \
        --workdir runs/photos

The folder has `train` and `validation`, with a folder for each class: photos/train/cat/1.jpg. MODEL
is a model directory or a hub id (google/vit-base-patch16-224-in21k). Other sources, such as a list
of files: `--config.data.train=…`, see docs/images.md.

    a new model                  --config.model.family=vit --config.model.size=small
    images of another size       --config.model.image_size=384
    no random changes            --config.data.crop_scale=1,1 --config.data.flip=0
    RandAugment                  --config.data.randaugment_ops=2
    a teacher (DeiT)             --config.model.family=deit --config.distillation.teacher=MODEL
"""

from ml_collections import ConfigDict


def get_config(
    directory: str = "",
    train: str = "",
    init_from: str = "",
    epochs: float = 10.0,
) -> ConfigDict:
    """Fine-tuning; a new model needs hundreds of epochs and a higher rate."""
    return ConfigDict(
        {
            "task": "image_classification",
            "init_from": init_from,
            "data": {"directory": directory, "train": train},
            "train": {"epochs": epochs},
        }
    )
